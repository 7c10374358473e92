"""The model and the images that a command is about: how they are read."""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from boundlab.commands.arguments import flat, value_range
from boundlab.commands.arrays import load_data
from boundlab.commands.counterexamples import COUNTEREXAMPLES
from boundlab.commands.devices import device_named
from boundlab.commands.jobs import check_images
from boundlab.commands.journal import refuse_to_replace
from boundlab.commands.loading import load_net
from boundlab.commands.page import with_digest
from boundlab.commands.speaking import busy
from boundlab.net import Net
from boundlab.training.checkpoints import CHECKPOINT

LOGGER = logging.getLogger(__name__)
RESULTS, TABLE = "results.json", "results"
"""Files of an output folder; tables have an end for each form."""


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
    with busy(options, f"reading {options.model}"):
        net, images = load_net(
            options.model,
            check_images(values, valid),
            weights=options.weights,
            mean=flat(options.mean),
            std=flat(options.std),
            device=device,
        )
    if values.dtype == torch.uint8:
        LOGGER.warning(f"{options.data} holds bytes (0 ... 255), which are divided by 255")
    name = f"{options.model} on {options.data.name}"
    return Subject(net, images, labels, options.norm, valid, options.batch, device, name)


def said_of(options: argparse.Namespace) -> dict[str, str]:
    """What the arguments of a command name, by what it is: files with their SHA-256, and a factory
    as it is called."""
    model: str = options.model
    if _content(Path(model)).is_file():
        model = with_digest(_content(Path(model)), model)
    found = {"Model": model}
    if options.weights is not None:
        found["Weights"] = with_digest(_content(options.weights), str(options.weights))
    return found | {"Data": with_digest(options.data)}


def _content(path: Path) -> Path:
    """The file with the weights: in the folder of a training run its checkpoint."""
    if path.is_dir():
        return path / CHECKPOINT
    return path
