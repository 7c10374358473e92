"""Boxes: every element moves on its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.dense import over_box
from boundlab.errors import ArgumentError
from boundlab.regions.base import Region, drawn, flat_beside, take_samples
from boundlab.regions.checks import Number, centre_tensor, given, radius, spread
from boundlab.relaxations.interval import Interval, middle


class _BoxLike(Region):
    """A set that is its own hull."""

    @property
    def is_box(self) -> bool:
        return True

    def samples(self, chosen: slice | Tensor) -> Region:
        return take_samples(self, chosen)

    def minimum(self, coefficients: Tensor) -> Tensor:
        return over_box(coefficients, self.hull())

    def contains(self, x: Tensor, tolerance: float = 0.0) -> Tensor:
        return inside(self.hull(), x.reshape(len(x), -1).double(), tolerance)

    def project(self, x: Tensor) -> Tensor:
        box = self.hull()
        return torch.minimum(torch.maximum(x, box.lower), box.upper)

    def sample(self, generator: torch.Generator | None = None, batched: bool = True) -> Tensor:
        box = self.hull()
        unit = drawn(torch.rand, box.shape, generator, box.lower)
        return box.lower + unit * (box.upper - box.lower)


@dataclass(frozen=True, eq=False)
class Box(_BoxLike):
    """All x with ``lower <= x <= upper`` elementwise."""

    lower: Tensor
    upper: Tensor

    def __post_init__(self) -> None:
        centre_tensor(self.lower, "Box(lower, upper): lower")
        centre_tensor(self.upper, "Box(lower, upper): upper")
        if self.lower.shape != self.upper.shape:
            raise ArgumentError(
                f"Box(lower, upper): the shapes differ: {tuple(self.lower.shape)} and "
                f"{tuple(self.upper.shape)}"
            )
        if (self.lower > self.upper).any():
            raise ArgumentError(
                "Box(lower, upper): lower exceeds upper somewhere, so the box is empty"
            )

    @property
    def centre(self) -> Tensor:
        return middle(self.lower, self.upper)

    def hull(self) -> Interval:
        return Interval(self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class Linf(_BoxLike):
    """All x with ``|x - centre| <= eps`` elementwise, cut to the valid range ``[lower, upper]`` if
    one is given.

    eps: a number, one per sample, or one per element (zero where an element must not move).

    x may be left out for a region on a parameter: it then sits on the parameter's value.
    """

    x: Tensor | None = None
    eps: Number = 0.0
    lower: Number | None = None
    upper: Number | None = None

    def __post_init__(self) -> None:
        if self.x is not None:
            centre_tensor(self.x)
            check_not_empty(cut(self.x, radius(self.eps, self.x), self.lower, self.upper))
        elif not isinstance(self.eps, Tensor):
            radius(self.eps, torch.zeros(()))

    def at(self, value: Tensor) -> Linf:
        if self.x is not None:
            return self
        return Linf(value, self.eps, self.lower, self.upper)

    @property
    def centre(self) -> Tensor:
        return given(self.x)

    def hull(self) -> Interval:
        x = given(self.x)
        return cut(x, radius(self.eps, x), self.lower, self.upper)


def inside(box: Interval, x: Tensor, tolerance: float) -> Tensor:
    """Whether flat inputs (batch, n) in double precision lie in a box: (batch,). NaN does not."""
    low, up = flat_beside(box.lower, x), flat_beside(box.upper, x)
    return ((x >= low - tolerance) & (x <= up + tolerance)).all(1)


def cut(x: Tensor, eps: Tensor, lower: Number | None, upper: Number | None) -> Interval:
    """[x - eps, x + eps] within the valid range."""
    low, up = x - eps, x + eps
    if lower is not None:
        low = torch.maximum(low, spread(lower, x, "lower"))
    if upper is not None:
        up = torch.minimum(up, spread(upper, x, "upper"))
    return Interval(low, up)


def check_not_empty(box: Interval) -> None:
    if (box.lower > box.upper).any():
        raise ArgumentError(
            "the region is empty: its centre lies farther than eps outside the valid range [lower, "
            "upper]"
        )
