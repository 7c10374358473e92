"""A tensor known only to lie between two others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from boundlab.kernels import intervals


def middle(lower: Tensor, upper: Tensor) -> Tensor:
    """The point between two others, and never outside: their sum may overflow, and halves of the
    smallest numbers are rounded."""
    if not lower.is_floating_point():
        return (lower + upper) / 2
    return torch.clamp(lower / 2 + upper / 2, lower, upper)


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
    def device(self) -> torch.device:
        return self.lower.device

    @property
    def requires_grad(self) -> bool:
        return self.lower.requires_grad or self.upper.requires_grad

    @property
    def centre(self) -> Tensor:
        return middle(self.lower, self.upper)

    @property
    def radius(self) -> Tensor:
        return self.upper / 2 - self.lower / 2

    @property
    def reach_of_ends(self) -> Tensor:
        """A radius around the centre that reaches both ends, as numbers are rounded: of a box from
        -4e8 to 1e30 the plain one ends at 0. Then it is longer by what a product of either with a
        coefficient may lose."""
        centre, radius = self.centre, self.radius
        short = (centre - radius > self.lower) | (centre + radius < self.upper)
        kind = torch.finfo(self.dtype)
        room = 4 * kind.eps * torch.maximum(self.lower.abs(), self.upper.abs())
        return torch.where(short, (radius + room).clamp(max=kind.max), radius)

    @property
    def ball(self) -> tuple[Tensor, Tensor]:
        """Centre and radius, in two passes over the memory instead of four."""
        if not self.dtype.is_floating_point:
            return self.centre, self.radius
        return intervals.ball(self.lower, self.upper)

    @staticmethod
    def around(centre: Tensor, radius: Tensor) -> Interval:
        """``centre +- radius``."""
        if centre.shape == radius.shape:
            return MidRad(centre, radius)
        return Interval(centre - radius, centre + radius)

    def intersect(self, other: Interval) -> Interval:
        """Both are true, so their intersection is.

        Two sound bounds of the same value can cross by a rounding error when both are almost
        points; then the result is what lies between them inside of this one, so that ``lower <=
        upper`` always holds and nothing gets wider. NaN never wins over a number.
        """
        lower = torch.minimum(torch.fmax(self.lower, other.lower), self.upper)
        upper = torch.maximum(torch.fmin(self.upper, other.upper), self.lower)
        return Interval(torch.minimum(lower, upper), torch.maximum(lower, upper))

    def loosened(self, scale: Interval) -> Interval:
        """Wider by a few rounding errors of numbers as large as another interval's, for readers
        with jumps."""
        room = 64 * torch.finfo(self.dtype).eps * (scale.lower.abs() + scale.upper.abs())
        return Interval(self.lower - room, self.upper + room)


DualRadius = Callable[[Callable[[float], Tensor]], Tensor]
"""How far <a, x> can be from its value at the centre of a set, for many a at once: asks for the
sums of |a|^q for some q."""


@dataclass(frozen=True, eq=False)
class DualNormInterval(Interval):
    """The hull of a set that is smaller, with the set's own reach."""

    reach: DualRadius


class MidRad(Interval):
    """``centre +- radius``. The ends are computed when they are asked for, once: chains of layers
    go without them."""

    def __init__(self, centre: Tensor, radius: Tensor) -> None:
        object.__setattr__(self, "_parts", (centre, radius))

    _parts: tuple[Tensor, Tensor]

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        with torch.set_grad_enabled(self.requires_grad):  # whoever happens to ask first
            return intervals.ends(*self._parts)

    @property
    def requires_grad(self) -> bool:
        return any(part.requires_grad for part in self._parts)

    @property
    def ball(self) -> tuple[Tensor, Tensor]:
        return self._parts

    @property
    def centre(self) -> Tensor:
        return self._parts[0]

    @property
    def radius(self) -> Tensor:
        return self._parts[1]

    @property
    def lower(self) -> Tensor:
        return self.ends[0]

    @property
    def upper(self) -> Tensor:
        return self.ends[1]

    @property
    def shape(self) -> torch.Size:
        return self.centre.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.centre.dtype

    @property
    def device(self) -> torch.device:
        return self.centre.device


LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
"""How channels come last in memory, for values with so many dimensions behind them."""


def laid_out(rows: Tensor, x: Interval) -> Tensor:
    """Rows (rows, *shape) of a value with the channels last in memory if those of the value are:
    convolutions are faster then, and steps that read both together are several times as fast as on
    two orders."""
    last = LAST.get(rows.dim() - 3)
    if last is None or rows.numel() == 0:
        return rows
    if isinstance(x, MidRad):  # whose ends need not be there
        value = x.centre
    else:
        value = x.lower
    if value.is_contiguous() or not value.is_contiguous(memory_format=last):
        return rows
    return rows.flatten(0, 1).contiguous(memory_format=last).unflatten(0, rows.shape[:2])


Value = Tensor | Interval
"""What an argument of an operator is during an analysis: a constant, or a value known within an
interval."""


def lower_of(value: Value) -> Tensor:
    if isinstance(value, Interval):
        return value.lower
    return value


def upper_of(value: Value) -> Tensor:
    if isinstance(value, Interval):
        return value.upper
    return value
