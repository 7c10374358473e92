"""Data as users have them on disk: images and labels in an .npz or a .csv file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from boundlab.data.npz import read_npz, whole_numbers
from boundlab.errors import ArgumentError

IMAGES, LABELS = ("images", "x"), ("labels", "y")
"""Names of arrays in a file .npz."""


def load_data(
    path: Path,
    shape: Sequence[int] | None = None,
    limit: int | None = None,
    layout: str = "chw",
) -> tuple[Tensor, Tensor]:
    """Images (N, *shape), uint8 or floating point, and labels (N,) from an .npz or .csv file; at
    most ``limit`` of them. layout: the order of an image's values in the file, one of LAYOUTS; with
    "hwc" the channels come last there, and first in the result."""
    if not path.is_file():
        raise ArgumentError(
            f"there is no data file {path}: give an .npz with the arrays images and labels, or a "
            ".csv with the label first"
        )
    if limit is not None and limit < 1:
        raise ArgumentError(f"--limit must be at least 1, not {limit}")
    if path.suffix.lower() == ".npz":
        images, labels = read_npz(path, IMAGES, LABELS)
    elif path.suffix.lower() == ".csv":
        images, labels = _read_csv(path)
        if shape is None and images.shape[1] > 1 and layout == "chw":
            shape = (images.shape[1],)
    else:
        raise ArgumentError(f"{path} is neither .npz nor .csv")
    if len(images) != len(labels):
        raise ArgumentError(f"{path} holds {len(images)} images but {len(labels)} labels")
    images = images[:limit]
    if shape is not None:
        images = _reshaped(images, shape, path)
    if layout == "hwc":
        images = _channels_first(images, shape, path)
    return torch.from_numpy(images), torch.from_numpy(labels[:limit])


def _reshaped(images: np.ndarray, shape: Sequence[int], path: Path) -> np.ndarray:
    size = int(np.prod(shape))
    if images[0:1].size != size and len(images):
        raise ArgumentError(
            f"--shape {','.join(map(str, shape))} has {size} values, but the images in {path} have "
            f"{images[0:1].size}"
        )
    return images.reshape(len(images), *shape)


def _channels_first(images: np.ndarray, shape: Sequence[int] | None, path: Path) -> np.ndarray:
    """Images whose values lie in the order of height, width and channels as (N, C, H, W). shape:
    C, H, W if it was given; else images have their own, (N, H, W, C)."""
    if images.ndim != 4:
        raise ArgumentError(
            "--layout hwc is for images of height, width and channels; those in "
            f"{path} have the shape {images.shape[1:]}: give --shape C,H,W"
        )
    if shape is not None:
        channels, height, width = shape
        images = images.reshape(len(images), height, width, channels)
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _read_csv(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Label first, then values. Whole numbers up to 255, some above 1, are taken for uint8
    pixels."""
    try:
        with path.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ArgumentError(f"cannot read {path}: {error}") from error
    if rows and not _numeric(rows[0][0]):  # a header
        rows = rows[1:]
    if not rows:
        raise ArgumentError(f"{path} has no rows")
    lengths = {len(row) for row in rows}
    if len(lengths) > 1 or min(lengths) < 2:
        raise ArgumentError(
            f"every row of {path} must have the label and the same number of values; there are "
            f"rows of {', '.join(map(str, sorted(lengths)))} fields"
        )
    try:
        table = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise ArgumentError(f"{path} holds something that is not a number: {error}") from error
    values, labels = table[:, 1:], whole_numbers(table[:, 0], path)
    pixels = (
        np.array_equal(values, np.round(values)) and values.min() >= 0 and 1 < values.max() <= 255
    )
    return values.astype(np.uint8 if pixels else np.float32), labels


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
