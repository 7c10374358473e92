"""Pickled or zipped batches of images: dicts with 'data', rows of the planes of red, green and
blue, and 'labels'."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from boundlab.data.files import read_bytes
from boundlab.data.pickles import load_arrays
from boundlab.errors import ArgumentError

Part = tuple[np.ndarray, np.ndarray]  # uint8 (n, 3, side, side) and int64 (n,)


def joined(parts: Sequence[Part]) -> Part:
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def checked(labels: object, path: Path, classes: range) -> np.ndarray:
    """Class numbers as int64 (n,), counted from 0."""
    try:
        array = np.asarray(labels)
    except ValueError:  # a list of lists of several lengths
        array = np.empty(0)
    numbers = array.ndim == 1 and array.dtype.kind in "iu" and array.size > 0
    if not numbers or array.min() < classes[0] or array.max() > classes[-1]:
        raise ArgumentError(
            f"the labels in {path} must be whole numbers from {classes[0]} to {classes[-1]}, one "
            "for each image"
        )
    return array.astype(np.int64) - classes[0]


def read_batch(path: Path, side: int, classes: range, what: str) -> Part:
    """what: the name of the set, for errors. Nothing that a file holds is called or trusted."""
    data, size = read_bytes(path), 3 * side * side
    try:
        batch = _entries(data, path)
    except Exception as error:  # a broken stream can raise nearly anything
        raise ArgumentError(
            f"{path} is not a python batch of {what}: {type(error).__name__}: {error}"
        ) from error
    if "data" not in batch or "labels" not in batch:
        raise ArgumentError(
            f"{path} is not a python batch of {what}: it must hold a dict with 'data' and 'labels'"
        )
    pixels, labels = batch["data"], checked(batch["labels"], path, classes)
    found = type(pixels).__name__
    if isinstance(pixels, np.ndarray):
        if pixels.dtype == np.uint8 and pixels.shape == (len(labels), size):
            return pixels.reshape(-1, 3, side, side), labels
        found = f"{pixels.dtype} {pixels.shape}"
    raise ArgumentError(
        f"'data' in {path} must be uint8 ({len(labels)}, {size}), one row for each label, not "
        f"{found}"
    )


def _entries(data: bytes, path: Path) -> dict[object, object]:
    """What a file holds by name; nothing if it holds no names."""
    if path.suffix == ".npz":
        return _zipped(data)
    content = load_arrays(data)
    if not isinstance(content, dict):
        return {}
    return {_text(key): value for key, value in content.items()}


def _zipped(data: bytes) -> dict[object, object]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in ("data", "labels") if name in arrays}


def _text(key: object) -> object:
    """A name; Python 2 wrote them as bytes."""
    if isinstance(key, bytes):
        return key.decode("latin1")
    return key
