"""A labelled set of images in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypeVar

import torch
from torch import Tensor

from boundlab.errors import ArgumentError
from boundlab.storage.digests import digest

CHUNK = 1 << 24
"""Pixels that are counted at once."""


def as_values(images: Tensor) -> Tensor:
    """Images as networks take them: bytes divided by 255, other numbers as they are."""
    if images.dtype == torch.uint8:
        return images.float() / 255
    return images.float()


@dataclass(frozen=True, eq=False)
class Samples:
    """A labelled set of samples: images (n, ...) uint8 or floating point, labels int64 (n,)."""

    images: Tensor
    labels: Tensor
    classes: int
    name: str

    def __post_init__(self) -> None:
        self._check_images()
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ArgumentError(
                f"{self.name}: labels must be int64 ({len(self.images)},), not "
                f"{self.labels.dtype} of shape {tuple(self.labels.shape)}"
            )
        if (
            len(self.labels)
            and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < self.classes
        ):
            raise ArgumentError(
                f"{self.name}: labels must be 0 to {self.classes - 1}, but reach from "
                f"{int(self.labels.min())} to {int(self.labels.max())}"
            )

    def _check_images(self) -> None:
        images = self.images
        if images.dim() < 2 or not (images.is_floating_point() or images.dtype == torch.uint8):
            raise ArgumentError(
                f"{self.name}: images must be uint8 or floating point (n, ...), not "
                f"{images.dtype} of shape {tuple(images.shape)}"
            )
        if not bool(torch.isfinite(images).all()):
            raise ArgumentError(f"{self.name}: images hold NaN or infinity")

    def __len__(self) -> int:
        return len(self.images)

    def first(self: Self, n: int | None) -> Self:
        """The first n, or all if there are fewer or n is None; shares their memory."""
        if n is not None and n < 1:
            raise ArgumentError(f"first(n): n must be at least 1, not {n}")
        return replace(self, images=self.images[:n], labels=self.labels[:n])

    @cached_property
    def digest(self) -> str:
        """Tells the set from others, by all labels and up to a thousand images from all over it."""
        return digest([self.name, self.labels, self.images[:: -(-len(self) // 1000) or 1]])

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation (over all values, divided by their number) of each channel,
        the dimension behind that of the samples, as networks take them."""
        if not self.images.numel():
            raise ArgumentError(f"{self.name} holds no pixels, so it has no mean")
        sums = torch.zeros(2, self.images.shape[1], dtype=torch.float64)
        for part in self.images.split(max(1, CHUNK // self.images[0].numel())):
            values = as_values(part).double().transpose(0, 1).flatten(1)
            sums += torch.stack([values.sum(1), (values * values).sum(1)])
        mean, second = sums * self.images.shape[1] / self.images.numel()
        deviation = (second - mean * mean).clamp(min=0).sqrt()
        return tuple(mean.tolist()), tuple(deviation.tolist())


@dataclass(frozen=True, eq=False)
class Images(Samples):
    """A labelled set of images, pixels as bytes: images uint8 (n, channels, height, width), labels
    int64 (n,)."""

    def _check_images(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.dim() != 4:
            raise ArgumentError(
                f"{self.name}: images must be uint8 (n, channels, height, width), not "
                f"{self.images.dtype} of shape {tuple(self.images.shape)}"
            )

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation (over all pixels, divided by their number) of each channel of
        images / 255."""
        if not self.images.numel():
            raise ArgumentError(f"{self.name} holds no pixels, so it has no mean")
        counts = self._histograms().tolist()
        means, deviations = [], []
        # whole numbers until the last division: nothing is lost however many pixels there are
        for count in counts:
            total = sum(count)
            first = sum(value * times for value, times in enumerate(count))
            second = sum(value**2 * times for value, times in enumerate(count))
            means.append(first / (255 * total))
            deviations.append(math.sqrt(total * second - first**2) / (255 * total))
        return tuple(means), tuple(deviations)

    def _histograms(self) -> Tensor:
        """How often each byte occurs in each channel, int64 (channels, 256)."""
        channels = self.images.shape[1]
        counts = torch.zeros(channels, 256, dtype=torch.int64)
        for part in self.images.split(max(1, CHUNK // self.images[0].numel())):
            counts += torch.stack(
                [
                    torch.bincount(part[:, channel].reshape(-1), minlength=256).cpu()
                    for channel in range(channels)
                ]
            )
        return counts


Set = TypeVar("Set", bound=Samples)


def central_crop(data: Set, size: int) -> Set:
    """The middle (size, size) of every image; where the margins cannot be equal, the upper and left
    ones are smaller by one."""
    height, width = data.images.shape[2:]
    if not 1 <= size <= min(height, width):
        raise ArgumentError(
            f"central_crop(data, size): size must be 1 to {min(height, width)} for images of "
            f"{height} x {width}, not {size}"
        )
    top, left = (height - size) // 2, (width - size) // 2
    return replace(
        data, images=data.images[:, :, top : top + size, left : left + size].contiguous()
    )
