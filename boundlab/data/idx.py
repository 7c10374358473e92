"""The idx files of MNIST and Fashion-MNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch

from boundlab.data.files import either, missing, places, present, read_bytes
from boundlab.data.images import Images
from boundlab.errors import ArgumentError

FOLDERS = {  # the set's own folders come first: both sets have files of the same names
    "mnist": ("mnist", "mnist/package/data", "MNIST/raw", ".", "package/data", "raw"),
    "fashion-mnist": (
        "fashion-mnist",
        "fashion-mnist/usr/share/datasets/fashion-mnist",
        "FashionMNIST/raw",
        ".",
        "raw",
    ),
}
STEMS = {"train": "train", "test": "t10k"}


def load_idx(name: str, directory: Path, split: str) -> Images:
    """Images (n, 1, 28, 28) of 10 classes."""
    needed = [_names(STEMS[split], kind, rank) for kind, rank in (("images", 3), ("labels", 1))]
    for folder in places(directory, FOLDERS[name]):
        if paths := present(folder, needed):
            return _read(name, *paths)
    raise missing(
        name,
        split,
        directory,
        FOLDERS[name],
        [" with ".join(map(either, needed))],
        f"`make data` fetches {name}",
    )


def _names(stem: str, kind: str, rank: int) -> list[str]:
    return [
        f"{stem}-{kind}{separator}idx{rank}-ubyte{suffix}"
        for separator in "-."
        for suffix in ("", ".gz")
    ]


def _read(name: str, image_path: Path, label_path: Path) -> Images:
    images, labels = read_idx(image_path, 3), read_idx(label_path, 1)
    if images.shape[1:] != (28, 28):
        raise ArgumentError(
            f"the images in {image_path} are {images.shape[1]} x {images.shape[2]}, not 28 x 28 as "
            f"those of {name}"
        )
    if len(images) != len(labels):
        raise ArgumentError(
            f"{image_path} holds {len(images)} images, but {label_path} {len(labels)} labels"
        )
    if labels.max(initial=0) > 9:
        raise ArgumentError(f"the labels in {label_path} must be 0 to 9, but reach {labels.max()}")
    return Images(
        torch.from_numpy(images[:, None]), torch.from_numpy(labels.astype(np.int64)), 10, name
    )


def read_idx(path: Path, rank: int) -> np.ndarray:
    """The array of unsigned bytes, with ``rank`` dimensions, in an idx file: two zero bytes, the
    type 8, the rank, the sizes, the values."""
    data = read_bytes(path)
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ArgumentError(
                f"{path} is not a whole gzip file: {error}. Fetch it again"
            ) from error
    start = 4 + 4 * rank
    magic = bytes((0, 0, 8, rank))
    if data[:4] != magic or len(data) < start:
        begins = (
            f"it must begin with {magic.hex()} and {rank} sizes, not with "
            f"{data[:start].hex() or 'nothing'}"
        )
        dimensions = "dimensions" if rank > 1 else "dimension"
        raise ArgumentError(
            f"{path} is not an idx file of unsigned bytes with {rank} {dimensions}: {begins}"
        )
    sizes = tuple(int(size) for size in np.frombuffer(data, ">u4", count=rank, offset=4))
    length = start + math.prod(sizes)
    if len(data) != length:
        cause = "something follows the values"
        if len(data) < length:
            cause = "it was cut off, fetch it again"
        raise ArgumentError(
            f"{path} should have {length} bytes for sizes {' x '.join(map(str, sizes))}, but has "
            f"{len(data)}: {cause}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes).copy()
