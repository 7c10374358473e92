"""A tensor known only to lie between two others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab import passes


@dataclass(frozen=True, eq=False)
class Interval:
    """``lower <= value <= upper`` elementwise; both tensors have the shape of the value."""

    lower: Tensor
    upper: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.lower.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.lower.dtype

    @property
    def centre(self) -> Tensor:
        return (self.lower + self.upper) / 2

    @property
    def radius(self) -> Tensor:
        return (self.upper - self.lower) / 2

    @property
    def ball(self) -> tuple[Tensor, Tensor]:
        """Centre and radius, in two passes over the memory instead of four."""
        return passes.ball(self.lower, self.upper) if self.dtype.is_floating_point else (self.centre, self.radius)

    @staticmethod
    def around(centre: Tensor, radius: Tensor) -> Interval:
        """``centre +- radius``."""
        return Interval(*passes.ends(centre, radius)) if centre.shape == radius.shape else Interval(centre - radius, centre + radius)

    def intersect(self, other: Interval) -> Interval:
        """Both are true, so their intersection is.

        Two sound bounds of the same value can cross by a rounding error when both are almost points; then the result is
        what lies between them inside of this one, so that ``lower <= upper`` always holds and nothing gets wider. NaN
        never wins over a number.
        """
        lower = torch.minimum(torch.fmax(self.lower, other.lower), self.upper)
        upper = torch.maximum(torch.fmin(self.upper, other.upper), self.lower)
        return Interval(torch.minimum(lower, upper), torch.maximum(lower, upper))

    def loosened(self, scale: Interval) -> Interval:
        """Wider by a few rounding errors of numbers as large as another interval's, for readers with jumps."""
        room = 64 * torch.finfo(self.dtype).eps * (scale.lower.abs() + scale.upper.abs())
        return Interval(self.lower - room, self.upper + room)


Value = Tensor | Interval
"""What an argument of an operator is during an analysis: a constant, or a value known within an interval."""


def lower_of(value: Value) -> Tensor:
    return value.lower if isinstance(value, Interval) else value


def upper_of(value: Value) -> Tensor:
    return value.upper if isinstance(value, Interval) else value
