"""Arrays of labelled samples in a file .npz."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from boundlab.errors import ArgumentError


def read_npz(
    path: Path, images_names: Sequence[str], labels_names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The first of some names that the file has: images (n, ...), uint8 or floating point, and
    labels, int64 (n,)."""
    if not zipfile.is_zipfile(path):
        raise ArgumentError(
            f"{path} is not an .npz file: write it with numpy.savez(path, images=..., labels=...)"
        )
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = (
                _pick(arrays, images_names, path),
                _pick(arrays, labels_names, path),
            )
    except ArgumentError:
        raise
    except Exception as error:  # a broken stream can raise nearly anything
        raise ArgumentError(
            f"cannot read {path} as an .npz file of plain arrays: {error}"
        ) from error
    if images.ndim == 0:
        raise ArgumentError(f"the images in {path} are a single number")
    if images.dtype == np.bool_ or (images.dtype.kind in "iu" and images.dtype != np.uint8):
        images = images.astype(np.float32)
    if images.dtype not in (np.uint8, np.float16, np.float32, np.float64):
        raise ArgumentError(
            f"the images in {path} must be numbers (uint8 or floating point), not {images.dtype}"
        )
    if images.dtype == np.float16:
        images = images.astype(np.float32)
    return images, whole_numbers(labels, path)


def _pick(arrays: Mapping[str, np.ndarray], names: Sequence[str], path: Path) -> np.ndarray:
    for name in names:
        if name in arrays:
            return np.asarray(arrays[name])
    others = ", ".join(f"'{name}'" for name in names[1:])
    raise ArgumentError(
        f"{path} has no array '{names[0]}' (or {others}); it has: {', '.join(arrays) or 'nothing'}"
    )


def whole_numbers(labels: np.ndarray, path: Path) -> np.ndarray:
    """Labels as int64 (N,)."""
    if labels.ndim != 1 and (labels.ndim == 0 or labels.size != len(labels)):
        raise ArgumentError(
            f"the labels in {path} must be one class number per image, (N,), not {labels.shape}"
        )
    if (
        labels.dtype.kind not in "iuf"
        or not np.array_equal(labels, np.round(labels))
        or not np.isfinite(labels).all()
    ):
        raise ArgumentError(f"the labels in {path} must be whole numbers")
    return labels.reshape(-1).astype(np.int64)
