"""What is to be certified or attacked: images, labels, radii and methods, checked; and the sets
around the images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import find_arithmetic
from boundlab.attacks import AttackSettings
from boundlab.defaults import COMPLETE
from boundlab.defaults import METHODS as DEFAULT_METHODS
from boundlab.errors import ArgumentError, did_you_mean
from boundlab.methods.method import METHODS, method_name
from boundlab.net import Net
from boundlab.regions import Region
from boundlab.regions.norms import NORMS, norm_named
from boundlab.verify.samples import time_limit

EFFORT = AttackSettings()
"""How images that no method proves are attacked if nothing is said."""


@dataclass(frozen=True, eq=False)
class Job:
    """What to certify, and how to walk through it.

    images: (N, *shape), floating point, or uint8 to be divided by 255. labels: (N,) class numbers.
    radii: of balls in the given norm ("inf", "2" or "1") around the images, cut to the valid range
    if one is given. batch: images at a time. name: noted in the results. attack: how images that no
    method proves are attacked; None for not at all. timeout: the seconds that the method "complete"
    may take for an image, 60 if left out. arithmetic: that bounds are proved for, "real", "float32"
    or "float64"; None: rounding is taken for nothing.
    """

    images: Tensor
    labels: Tensor
    radii: Sequence[float]
    methods: Sequence[str] = DEFAULT_METHODS
    norm: str = "inf"
    valid: tuple[float, float] | None = None
    batch: int = 16
    device: torch.device | str = "cpu"
    name: str = ""
    attack: AttackSettings | None = EFFORT
    timeout: float | None = None
    arithmetic: str | None = None

    def checked(self) -> Job:
        """The job with images in floating point, labels in int64, and each method and radius once;
        an error if it cannot be done."""
        if self.batch < 1:
            raise ArgumentError(f"the batch size must be at least 1, not {self.batch}")
        if self.attack is not None and (self.attack.steps < 0 or self.attack.restarts < 1):
            raise ArgumentError(
                f"the attack needs steps >= 0 and restarts >= 1, not {self.attack.steps}, "
                f"{self.attack.restarts}"
            )
        find_arithmetic(self.arithmetic)
        images = check_images(self.images, self.valid)
        return replace(
            self,
            norm=norm_named(self.norm),
            images=images,
            labels=check_labels(self.labels, len(images)),
            radii=check_radii(self.radii),
            methods=check_methods(self.methods, none=self.attack is not None),
            timeout=time_limit(self.timeout, self.methods),
        )

    def limit(self, method: str) -> float | None:
        """The seconds that a method may take for an image, if it has a limit."""
        return self.timeout if method == COMPLETE else None


def region_around(
    x: Tensor, radius: float, norm: str = "inf", valid: tuple[float, float] | None = None
) -> Region:
    """The ball around every image of x: (batch, *shape), within the valid range."""
    low, high = valid or (None, None)
    return NORMS[norm](x, radius, low, high)


def batch_size(net: Net, batch: int) -> int:
    """How many samples a net takes at once: so many, or those of its fixed batch size."""
    shape, _, free = net.graph.examples[net.graph.inputs[0]]
    if free:
        return batch
    return int(shape[0])


def batches(
    net: Net, values: Tensor, batch: int, device: torch.device | str
) -> Iterator[tuple[int, Tensor]]:
    """values (N, ...) in parts as the net takes them, each with the number that counts: a net with
    a fixed batch size has the last part filled up by repetition."""
    free = net.graph.examples[net.graph.inputs[0]][2]
    batch = batch_size(net, batch)
    for part in values.split(batch):
        count = len(part)
        if not free and count < batch:
            part = part[torch.arange(batch).clamp(max=count - 1)]
        yield count, part.to(device)


def check_methods(methods: Sequence[str], none: bool = False) -> tuple[str, ...]:
    """The methods by the names of their rows, each once; an unknown name is an error. none: whether
    there may be none."""
    known = (*METHODS, COMPLETE)
    methods = [method_name(method) for method in methods]
    for method in methods:
        if method not in known:
            raise ArgumentError(
                f"there is no method {method!r}; there are: {', '.join(known)}."
                f"{did_you_mean(method, known)}"
            )
    if not methods and not none:
        raise ArgumentError(f"give at least one method; there are: {', '.join(known)}")
    return tuple(dict.fromkeys(methods))


def check_radii(radii: Sequence[float]) -> tuple[float, ...]:
    """The radii, each once."""
    for radius in radii:
        if not (math.isfinite(radius) and radius >= 0):
            raise ArgumentError(f"a radius must be a finite number >= 0, not {radius}")
    if not radii:
        raise ArgumentError("give at least one radius")
    return tuple(dict.fromkeys(float(radius) for radius in radii))


def check_images(images: Tensor, valid: tuple[float, float] | None) -> Tensor:
    """The images in floating point, all within the valid range."""
    if images.dim() < 2 or len(images) == 0:
        raise ArgumentError(
            f"images must have the shape (N, ...) with N >= 1, not {tuple(images.shape)}"
        )
    if images.dtype == torch.uint8:
        images = images.float() / 255
    if not images.is_floating_point():
        raise ArgumentError(
            f"images must be floating point, or uint8 to be divided by 255, not {images.dtype}"
        )
    if not bool(images.isfinite().all()):
        raise ArgumentError("the images contain NaN or infinite values")
    if valid is None:
        return images
    low, high = valid
    if not low <= high:
        raise ArgumentError(f"the valid range needs low <= high, not {low} ... {high}")
    least, most = float(images.min()), float(images.max())
    if least < low or most > high:
        raise ArgumentError(
            f"the images span {least:g} ... {most:g}, outside the valid range {low:g} ... "
            f"{high:g}: give the true one (--range LOW HIGH), or none (--range none)"
        )
    return images


def check_labels(labels: Tensor, count: int) -> Tensor:
    """One class number per image: (N,) in int64."""
    if labels.is_floating_point() or labels.is_complex():
        raise ArgumentError(f"labels must be whole numbers, not {labels.dtype}")
    if labels.numel() != count:
        raise ArgumentError(f"there are {count} images but {labels.numel()} labels")
    return labels.reshape(-1).long()
