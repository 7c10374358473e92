"""Pickled or zipped batches of images: dicts with 'data', rows of the planes of red, green and
blue, and 'labels'."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boundlab.data.files import read_bytes
from boundlab.data.pickles import load_arrays
from boundlab.errors import ArgumentError

Part = tuple[np.ndarray, np.ndarray]  # uint8 (n, 3, side, side) and int64 (n,)


def joined(parts: Sequence[Part]) -> Part:
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def checked(labels: Any, path: Path, classes: range) -> np.ndarray:
    """Class numbers as int64 (n,), counted from 0."""
    try:
        array = np.asarray(labels)
    except ValueError:  # a list of lists of several lengths
        array = np.empty(0)
    if (
        array.ndim != 1
        or array.dtype.kind not in "iu"
        or array.size == 0
        or array.min() < classes[0]
        or array.max() > classes[-1]
    ):
        raise ArgumentError(
            f"the labels in {path} must be whole numbers from {classes[0]} to {classes[-1]}, one "
            "for each image"
        )
    return array.astype(np.int64) - classes[0]


def read_batch(path: Path, side: int, classes: range, what: str) -> Part:
    """what: the name of the set, for errors. Nothing that a file holds is called or trusted."""
    data, size = read_bytes(path), 3 * side * side
    try:
        batch = _zipped(data) if path.suffix == ".npz" else load_arrays(data)
    except Exception as error:  # a broken stream can raise nearly anything
        raise ArgumentError(
            f"{path} is not a python batch of {what}: {type(error).__name__}: {error}"
        ) from error
    entries = {_text(key): value for key, value in batch.items()} if isinstance(batch, dict) else {}
    if "data" not in entries or "labels" not in entries:
        raise ArgumentError(
            f"{path} is not a python batch of {what}: it must hold a dict with 'data' and 'labels'"
        )
    pixels, labels = entries["data"], checked(entries["labels"], path, classes)
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape != (len(labels), size)
    ):
        found = (
            f"{pixels.dtype} {pixels.shape}"
            if isinstance(pixels, np.ndarray)
            else type(pixels).__name__
        )
        raise ArgumentError(
            f"'data' in {path} must be uint8 ({len(labels)}, {size}), one row for each label, not "
            f"{found}"
        )
    return pixels.reshape(-1, 3, side, side), labels


def _zipped(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in ("data", "labels") if name in arrays}


def _text(key: Any) -> Any:
    return key.decode("latin1") if isinstance(key, bytes) else key
