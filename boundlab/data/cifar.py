"""CIFAR-10 in its three forms: pickled batches, binary batches, and sheets of PNG with labels in
JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from boundlab.data.batches import Part, checked, joined, read_batch
from boundlab.data.files import decode, either, missing, need_pillow, places, present, read_bytes
from boundlab.data.images import Images
from boundlab.errors import ArgumentError

FOLDERS = (
    "cifar10", "cifar10/cifar-10-batches-py", "cifar10/cifar-10-batches-bin", "cifar10/package",
    "cifar-10-batches-py", "cifar-10-batches-bin", ".", "package",
)  # fmt: skip
STEMS = {"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)}
PIXELS = 3 * 32 * 32
CLASSES = range(10)


def load_cifar10(directory: Path, split: str) -> Images:
    """Images (n, 3, 32, 32) of 10 classes."""
    forms = _forms(split)
    for folder in places(directory, FOLDERS):
        for read, needed in forms:
            if paths := present(folder, needed):
                images, labels = read(paths)
                return Images(torch.from_numpy(images), torch.from_numpy(labels), 10, "cifar10")
    wanted = [", ".join(map(either, needed)) for _, needed in forms]
    raise missing("cifar10", split, directory, FOLDERS, wanted, "`make data` fetches cifar10")


def _forms(split: str) -> list[tuple[Callable[[Sequence[Path]], Part], list[list[str]]]]:
    """How each form is read, and the files that it has."""
    stems = STEMS[split]
    labels = [f"{split}_lables.json", f"{split}_labels.json"]  # the package has the first spelling
    return [
        (
            lambda paths: joined([read_batch(path, 32, CLASSES, "CIFAR-10") for path in paths]),
            [[stem] for stem in stems],
        ),
        (
            lambda paths: joined([_read_binary(path) for path in paths]),
            [[f"{stem}.bin"] for stem in stems],
        ),
        (_read_sheets, [*([f"{stem}.png"] for stem in stems), labels]),
    ]


# -- binary batches: a byte for the label, then the planes of red, green and blue ------------------


def _read_binary(path: Path) -> Part:
    data = read_bytes(path)
    if not data or len(data) % (1 + PIXELS):
        raise ArgumentError(
            f"{path} has {len(data)} bytes, which is not a number of images of {1 + PIXELS} "
            "bytes: it was cut off, or is something else"
        )
    rows = np.frombuffer(data, np.uint8).reshape(-1, 1 + PIXELS)
    return rows[:, 1:].reshape(-1, 3, 32, 32), checked(rows[:, 0], path, CLASSES)


# -- sheets: an image is a row of 1024 pixels ------------------------------------------------------


def _read_sheets(paths: Sequence[Path]) -> Part:
    need_pillow()
    images = np.concatenate([_read_sheet(path) for path in paths[:-1]])
    data = read_bytes(paths[-1])
    try:
        entries = json.loads(data)
    except ValueError as error:
        raise ArgumentError(f"{paths[-1]} is not a JSON list of labels: {error}") from error
    labels = checked(entries, paths[-1], CLASSES)
    if len(images) != len(labels):
        raise ArgumentError(
            f"{', '.join(path.name for path in paths[:-1])} hold {len(images)} images, but "
            f"{paths[-1]} {len(labels)} labels"
        )
    return images, labels


def _read_sheet(path: Path) -> np.ndarray:
    sheet = decode(read_bytes(path), path)  # (n, 1024, 3)
    if sheet.shape[1] != 1024:
        raise ArgumentError(
            f"{path} is {sheet.shape[1]} pixels wide, not 1024: a row must be an image of 32 x 32"
        )
    return np.ascontiguousarray(sheet.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
