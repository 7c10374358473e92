"""The shape of a function of one variable, and its range over an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval

Function = Callable[[Tensor], Tensor]


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
    (:mod:`boundlab.rules.touching`).
    """

    kinds: tuple[str, ...]
    breaks: tuple[float, ...] = ()
    turns: tuple[float, ...] = ()
    jumps: tuple[tuple[float, float], ...] = ()
    domain: tuple[float, float, bool] | None = None
    derivative: Function | None = None
    stationary: Callable[[Tensor, Tensor, Tensor], list[Tensor]] | None = field(default=None)
    touching: Function | None = None

    def __post_init__(self) -> None:
        assert len(self.kinds) == len(self.breaks) + 1 and set(self.kinds) <= set(OPPOSITE)

    def negated(self) -> Curve:
        """The shape of -f."""
        derivative = self.derivative
        return replace(
            self,
            kinds=tuple(OPPOSITE[kind] for kind in self.kinds),
            jumps=tuple((at, -value) for at, value in self.jumps),
            derivative=None if derivative is None else lambda x: -derivative(x),
            stationary=None
            if self.stationary is None
            else lambda a, l, u: self.stationary(-a, l, u),  # type: ignore[misc]
        )


def derivative_of(f: Function, curve: Curve) -> Function:
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
    return torch.minimum(torch.maximum(torch.full_like(x.lower, point), x.lower), x.upper)


def jump(f: Function, at: float, value: float, x: Interval) -> tuple[Tensor, Tensor]:
    """The one-sided value at a jump inside [l, u]; f(l) where the jump is outside."""
    here = (x.lower <= at) & (at <= x.upper)
    return torch.where(here, at, x.lower), torch.where(here, value, f(x.lower))
