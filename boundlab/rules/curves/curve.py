"""The shape of a function of one variable, and its range over an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval

Function = Callable[[Tensor], Tensor]
Stationary = Callable[[Tensor, Tensor, Tensor], list[Tensor]]
"""From a slope, l and u to the points of [l, u] where f' may equal the slope."""
Line = tuple[Tensor, Tensor]
"""Slope and intercept."""

OPPOSITE = {"convex": "concave", "concave": "convex", "linear": "linear"}


@dataclass(frozen=True, eq=False)
class Curve:
    """The shape of an elementwise function.

    kinds: "convex", "concave" or "linear" for each piece, one more than ``breaks``. turns: points
    where it changes between rising and falling. jumps: (point, one-sided value) pairs where it is
    discontinuous. domain: (lowest, highest, whether the ends belong to it). derivative: f', else
    autograd's. stationary: from slope, l, u all points of [l, u] where f' may equal the slope, if
    there is a closed form (then ``breaks`` may be incomplete). touching: for an S-shaped function
    that is point-symmetric about its break, the last touching point from u
    (``boundlab/rules/touching.py``).
    """

    kinds: tuple[str, ...]
    breaks: tuple[float, ...] = ()
    turns: tuple[float, ...] = ()
    jumps: tuple[tuple[float, float], ...] = ()
    domain: tuple[float, float, bool] | None = None
    derivative: Function | None = None
    stationary: Stationary | None = None
    touching: Function | None = None

    def __post_init__(self) -> None:
        assert len(self.kinds) == len(self.breaks) + 1 and set(self.kinds) <= set(OPPOSITE)

    @property
    def told_by_kinds(self) -> bool:
        """Whether the pieces alone tell the shape: it does not jump, and they are complete."""
        return self.stationary is None and not self.jumps

    def negated(self) -> Curve:
        """The shape of -f."""
        return replace(
            self,
            kinds=tuple(OPPOSITE[kind] for kind in self.kinds),
            jumps=tuple((at, -value) for at, value in self.jumps),
            derivative=_negated(self.derivative),
            stationary=_with_opposite_slope(self.stationary),
        )


def _negated(f: Function | None) -> Function | None:
    if f is None:
        return None
    return lambda x: -f(x)


def _with_opposite_slope(points: Stationary | None) -> Stationary | None:
    if points is None:
        return None
    return lambda slope, l, u: points(-slope, l, u)


def derivative_of(f: Function, curve: Curve) -> Function:
    """f', as the curve says or by autograd."""
    if curve.derivative is not None:
        return curve.derivative
    return lambda x: torch.func.grad(lambda t: f(t).sum())(x)


def interval(f: Function, curve: Curve, x: Interval) -> Interval:
    """The range of f over [l, u]: its values at the ends, at the turns and at the jumps inside."""
    values = [f(x.lower), f(x.upper)]
    values += [f(nearest(turn, x)) for turn in curve.turns]
    values += [jump(f, at, value, x)[1] for at, value in curve.jumps]
    low, up = values[0], values[0]
    for value in values[1:]:
        low, up = torch.minimum(low, value), torch.maximum(up, value)
    return Interval(low, up)


def nearest(point: float, x: Interval) -> Tensor:
    """The point of each interval that is nearest to a given one."""
    return torch.minimum(torch.maximum(torch.full_like(x.lower, point), x.lower), x.upper)


def jump(f: Function, at: float, value: float, x: Interval) -> tuple[Tensor, Tensor]:
    """A jump inside [l, u] and the one-sided value there; l and f(l) where the jump is outside."""
    here = (x.lower <= at) & (at <= x.upper)
    return torch.where(here, at, x.lower), torch.where(here, value, f(x.lower))


def halvings(dtype: torch.dtype) -> int:
    """How often an interval is halved to find a point in it, about once for each binary digit."""
    if dtype == torch.float64:
        return 54
    return 26
