"""Data of the user's own: arrays in a file .npz, or what ``package.module:factory`` makes.

The file holds ``images`` and ``labels`` for training, ``test_images`` and ``test_labels`` for
tests; the factory, called without arguments, gives (train, test), each a pair of tensors or arrays
(x, y), or a data set of pairs, which is read into memory once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from boundlab.data.images import Images, Samples
from boundlab.data.npz import read_npz, whole_numbers
from boundlab.errors import ArgumentError
from boundlab.models.code import called, describe, thing_named

NAMES = {
    "train": (
        ("images", "x", "train_images", "x_train"),
        ("labels", "y", "train_labels", "y_train"),
    ),
    "test": (("test_images", "x_test", "test_x"), ("test_labels", "y_test", "test_y")),
}
"""Names of arrays for images and labels, by split."""
NAME = "own"
"""What own data are called in checkpoints: no name of a file, so that files can be moved."""


class _Pairs(Protocol):
    """A data set as torch.utils.data has them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Any, Any]: ...


def samples_of_file(path: Path, split: str, alone: bool = False) -> Samples:
    """The training or the test samples of a file .npz. alone: take those without a split's name for
    test samples where there are no others."""
    if not path.is_file():
        raise ArgumentError(
            f"there is no data file {path}: give an .npz with the arrays images and labels, and "
            "test_images and test_labels for tests"
        )
    try:
        images, labels = read_npz(path, *NAMES[split])
    except ArgumentError:
        if not alone:
            raise
        images, labels = read_npz(path, *NAMES["train"])
    return made(images, labels, str(path))


def samples_of_code(source: str, split: str) -> Samples:
    """The training or the test samples that a factory gives; its code is run."""
    parts = called(thing_named(source), source, "(train, test)")
    if not isinstance(parts, Sequence) or len(parts) != 2:
        raise ArgumentError(
            f"{source}() must give (train, test), each (x, y) or a data set of pairs, not "
            f"{_described(parts)}"
        )
    part = parts[("train", "test").index(split)]
    what = f"the {split} part of {source}()"
    if _is_pair(part):
        return made(part[0], part[1], what)
    return made(*_collected(part, what), what)


def _is_pair(part: object) -> bool:
    """Whether a part is (x, y), and not a data set of two pairs."""
    return (
        isinstance(part, Sequence)
        and len(part) == 2
        and all(isinstance(values, (Tensor, np.ndarray)) for values in part)
    )


def _collected(part: _Pairs, what: str) -> tuple[Tensor, Tensor]:
    """All pairs of a data set, stacked."""
    try:
        pairs = [part[index] for index in range(len(part))]
        images = torch.stack([torch.as_tensor(x) for x, _ in pairs])
        return images, torch.tensor([int(y) for _, y in pairs])
    except Exception as error:  # of the user's code, which can raise anything
        raise ArgumentError(
            f"{what} is neither a pair of tensors (x, y) nor a data set with a length, whose items "
            f"are pairs of a tensor and a class: {describe(error)}"
        ) from error


def made(images: Any, labels: Any, what: str) -> Samples:
    """Labelled samples of tensors or arrays; images with four dimensions of bytes are images."""
    x, y = torch.as_tensor(images), np.asarray(labels)
    if y.ndim == 0 or len(x) != len(y):
        raise ArgumentError(f"{what} holds {len(x)} images but labels of shape {y.shape}")
    if not len(x):
        raise ArgumentError(f"{what} holds no images")
    classes = torch.from_numpy(whole_numbers(y, Path(what)))
    if x.dtype != torch.uint8 and not x.is_floating_point():
        x = x.float()
    kind = Samples
    if x.dtype == torch.uint8 and x.dim() == 4:
        kind = Images
    return kind(x.contiguous(), classes, int(classes.max()) + 1, NAME)


def _described(thing: object) -> str:
    if isinstance(thing, Sequence):
        return f"a {type(thing).__name__} of {len(thing)}"
    return f"a {type(thing).__name__}"
