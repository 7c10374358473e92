"""Downscaled ImageNet, 64 x 64, as its authors give it: ten batches of training images and one of
validation images."""

from __future__ import annotations

from pathlib import Path

import torch

from boundlab.data.batches import joined, read_batch
from boundlab.data.files import missing, places, present
from boundlab.data.images import Images

FOLDERS = (
    "downscaled-imagenet",
    "Imagenet64_train",
    "Imagenet64_val",
    "Imagenet64_train_npz",
    "Imagenet64_val_npz",
    ".",
)
STEMS = {"train": tuple(f"train_data_batch_{k}" for k in range(1, 11)), "test": ("val_data",)}


def load_downscaled_imagenet(directory: Path, split: str) -> Images:
    """Images (n, 3, 64, 64) of 1000 classes, numbered from 0. All of the training set are 16 GB, as
    bytes."""
    for folder in places(directory, FOLDERS):
        for suffix in ("", ".npz"):
            if paths := present(folder, [[stem + suffix] for stem in STEMS[split]]):
                images, labels = joined(
                    [read_batch(path, 64, range(1, 1001), "Downscaled ImageNet") for path in paths]
                )
                return Images(
                    torch.from_numpy(images), torch.from_numpy(labels), 1000, "downscaled-imagenet"
                )
    wanted = [", ".join(stem + suffix for stem in STEMS[split]) for suffix in ("", ".npz")]
    remedy = (
        "Its authors offer it on the site of ImageNet, as 'downsampled image data, 64x64'; "
        "unpack the archives there"
    )
    raise missing("downscaled-imagenet", split, directory, FOLDERS, wanted, remedy)
