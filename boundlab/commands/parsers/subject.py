"""The arguments of commands about a model and images: ``certify``, ``attack``, ``radius``."""

from __future__ import annotations

import argparse
from pathlib import Path

from boundlab.commands.arguments import (
    Arguments,
    add_count,
    add_device,
    add_json,
    add_numbers,
    add_ray,
    add_resume,
    norm,
    shape,
)
from boundlab.defaults import LAYOUTS


def add_subject(parser: argparse.ArgumentParser) -> None:
    """The model, the images, and how they fit together."""
    group = parser.add_argument_group("model and data")
    group.add_argument(
        "model",
        metavar="MODEL",
        help="package.module:factory, called without arguments; an ONNX file (.onnx, .onnx.gz); a "
        "program saved with torch.export (.pt2); or the output folder of boundlab train",
    )
    group.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help=".npz with images (or x) and labels (or y), or .csv with the label first; uint8 is "
        "divided by 255",
    )
    group.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help="state dict for the model (read with weights_only=True), or the output folder of "
        "boundlab train --model or of boundlab.fit",
    )
    add_numbers(group, "--mean", "M", "normalisation inside the model: one mean, or one a channel")
    add_numbers(group, "--std", "S", "and one standard deviation, or one a channel")
    group.add_argument(
        "--shape",
        type=shape,
        metavar="C,H,W",
        help="shape of one image as the model takes it, if the file does not have it",
    )
    group.add_argument(
        "--layout",
        choices=LAYOUTS,
        default=LAYOUTS[0],
        help="order of channels, height and width in the file: chw as models take them, or hwc "
        "(default: chw)",
    )
    add_count(group, "--limit", "only the first N images")


def add_norm(group: Arguments) -> None:
    """The ball around every image, but for its radius."""
    group.add_argument(
        "--norm",
        type=norm,
        default="inf",
        metavar="NORM",
        help="of the ball around every image: inf (or linf), 2 (l2) or 1 (l1) (default: inf)",
    )
    group.add_argument(
        "--range",
        nargs="+",
        default=["0", "1"],
        metavar=("LOW", "HIGH"),
        help="valid values of an input, which the ball is cut to, or none (default: 0 1)",
    )


def add_machine(group: Arguments) -> None:
    """Where the work is done, and how much of it at a time."""
    add_count(group, "--batch", "images at a time", 16)
    add_device(group, "cpu")
    add_ray(group)


def add_output(group: Arguments, default: str, what: str) -> None:
    """The folder of results, and what goes elsewhere. what: is left in the folder."""
    group.add_argument(
        "--output",
        type=Path,
        default=Path(default),
        metavar="DIR",
        help=f"folder for {what} (default: {default})",
    )
    add_resume(group)
    add_json(group)
