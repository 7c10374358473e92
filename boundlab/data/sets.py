"""The sets by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from boundlab.data.cifar import load_cifar10
from boundlab.data.downscaled_imagenet import load_downscaled_imagenet
from boundlab.data.idx import load_idx
from boundlab.data.images import Images
from boundlab.data.tiny_imagenet import load_tiny_imagenet
from boundlab.errors import ArgumentError

_LOADERS: dict[str, Callable[[Path, str], Images]] = {
    "mnist": partial(load_idx, "mnist"),
    "fashion-mnist": partial(load_idx, "fashion-mnist"),
    "cifar10": load_cifar10,
    "tiny-imagenet": load_tiny_imagenet,
    "downscaled-imagenet": load_downscaled_imagenet,
}
SETS = tuple(_LOADERS)
SPLITS = ("train", "test")


def load(name: str, directory: str | Path, split: str) -> Images:
    """A set, one of ``SETS``, from its usual files in the directory or in a folder of it; split:
    "train" or "test".

    Tiny-ImageNet's test images have no public labels, so its "test" is the validation split; so is
    that of Downscaled ImageNet.
    """
    if name not in SETS:
        raise ArgumentError(f"there is no set {name!r}; there are: {', '.join(SETS)}")
    if split not in SPLITS:
        raise ArgumentError(f'split must be "train" or "test", not {split!r}')
    return _LOADERS[name](Path(directory), split)
