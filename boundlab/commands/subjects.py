"""The model and the images that a command is about: their arguments, and how they are read."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from boundlab.commands.arguments import add_count, add_numbers, flat, norm, shape, value_range
from boundlab.commands.arrays import LAYOUTS, load_data
from boundlab.commands.counterexamples import COUNTEREXAMPLES
from boundlab.commands.devices import add_device, device_named
from boundlab.commands.jobs import EFFORT, check_images
from boundlab.commands.journal import refuse_to_replace
from boundlab.commands.loading import load_net
from boundlab.commands.page import with_digest
from boundlab.net import Net

RESULTS, TABLE = "results.json", "results"
"""Files of an output folder; tables have an end for each form."""
EPS = (2 / 255, 8 / 255)
"""Radii if nothing is said."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A captured model and images (N, *shape) in floating point as it takes them, labels (N,), and
    the set around each image: a ball in a norm, cut to the valid range. batch: images at a time.
    """

    net: Net
    images: Tensor
    labels: Tensor
    norm: str
    valid: tuple[float, float] | None
    batch: int
    device: torch.device
    name: str


def add_subject(parser: argparse.ArgumentParser) -> None:
    """The arguments that :func:`read_subject` reads."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=(
            "package.module:factory, called without arguments, an ONNX file (.onnx, .onnx.gz), or "
            "a program saved with torch.export (.pt2)"
        ),
    )
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help=(
            ".npz with images (or x) and labels (or y), or .csv with the label first; uint8 is "
            "divided by 255"
        ),
    )
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help=("state dict for the model (read with weights_only=True)"),
    )
    parser.add_argument(
        "--norm",
        type=norm,
        default="inf",
        metavar="NORM",
        help="of the ball around every image: inf, 2 or 1 (default: inf)",
    )
    parser.add_argument(
        "--range",
        nargs="+",
        default=["0", "1"],
        metavar=("LOW", "HIGH"),
        help=("valid values of an input, or none (default: 0 1)"),
    )
    add_numbers(
        parser, "--mean", "M", "normalisation inside the model, one number or one per channel"
    )
    add_numbers(parser, "--std", "S")
    parser.add_argument(
        "--shape",
        type=shape,
        metavar="C,H,W",
        help="shape of one image as the model takes it, if the file does not have it",
    )
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default=LAYOUTS[0],
        help="order of channels, height and width in the file (default: chw, as models take them)",
    )
    add_count(parser, "--batch", "images at a time", 16)
    add_count(parser, "--limit", "only the first N images")
    add_device(parser, "cpu")


def add_attack(parser: argparse.ArgumentParser) -> None:
    """How hard the attack tries."""
    add_count(parser, "--steps", "steps of the attack", EFFORT.steps)
    add_count(parser, "--restarts", "random starts of the attack", EFFORT.restarts)


def add_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resume", action="store_true", help="go on from the results in the output folder"
    )


def check_folder(folder: Path, resume: bool, table: str) -> None:
    """An error if a folder holds results already, unless they are gone on from."""
    if not resume:
        names = (RESULTS, COUNTEREXAMPLES, f"{table}.csv", f"{table}.parquet")
        refuse_to_replace(*[folder / name for name in names])


def read_subject(options: argparse.Namespace) -> Subject:
    """What the arguments of a command name."""
    valid = value_range(options.range)
    device = device_named(options.device)
    values, labels = load_data(options.data, options.shape, options.limit, options.layout)
    if values.dtype == torch.uint8:
        print("boundlab: the values are bytes (0 ... 255) and are divided by 255", file=sys.stderr)
    net, images = load_net(
        options.model,
        check_images(values, valid),
        weights=options.weights,
        mean=flat(options.mean),
        std=flat(options.std),
        device=device,
    )
    name = f"{options.model} on {options.data.name}"
    return Subject(net, images, labels, options.norm, valid, options.batch, device, name)


def said_of(options: argparse.Namespace) -> dict[str, str]:
    """What the arguments of a command name, by what it is: files with their SHA-256, and a factory
    as it is called."""
    model: str = options.model
    if Path(model).is_file():
        model = with_digest(Path(model))
    found = {"Model": model}
    if options.weights is not None:
        found["Weights"] = with_digest(options.weights)
    return found | {"Data": with_digest(options.data)}
