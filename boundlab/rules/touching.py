"""Where the tangent of an S-shaped function that passes through its point at u touches it: a table,
made once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

Function = Callable[[Tensor], Tensor]

STEPS = 1 << 14
SMALLEST, LARGEST = 2.0**-10, 2.0**10


@dataclass(frozen=True, eq=False)
class Touching:
    """f: convex below 0, concave above, point-symmetric about (0, f(0)); df: its derivative.

    For u > 0 the tangents at d < 0 whose value at u is at most f(u) are those with d up to some
    d*(u), which depends on u alone. Between the points of the table, at equal ratios of u, it is
    interpolated and then lowered by more than the error that is found half way between them. Below
    the table d* is almost proportional to u (f is almost a cubic), and lowered by 1 %, where
    nothing is lost any more: a tangent misses (u, f(u)) by the third power of u. The symmetry makes
    the same table serve for -f(-t), whose lower lines are the upper ones of f.
    """

    f: Function
    df: Function

    def __call__(self, u: Tensor) -> Tensor:
        """A point just below d*(u); infinity for u <= 0, where every tangent is below f, minus
        infinity beyond the table."""
        table = self._tables.get((u.dtype, u.device))
        if table is None:
            table = self._tables[u.dtype, u.device] = self._table.to(u)
        per_octave = STEPS / (math.log2(LARGEST) - math.log2(SMALLEST))
        octaves = torch.log2(u.clamp(min=SMALLEST, max=LARGEST)) - math.log2(SMALLEST)
        where = octaves * per_octave
        first = where.long().clamp(0, STEPS - 1)
        ratio = torch.lerp(table[first], table[first + 1], where - first)
        found = ratio * u
        return torch.where(u <= 0, torch.inf, torch.where(u > LARGEST, -torch.inf, found))

    @cached_property
    def _tables(self) -> dict[tuple[torch.dtype, torch.device], Tensor]:
        """The table on each device that has asked for it."""
        return {}

    @cached_property
    def _table(self) -> Tensor:
        """d*(u) / u, lowered."""
        points = torch.logspace(
            math.log2(SMALLEST), math.log2(LARGEST), STEPS + 1, base=2.0, dtype=torch.float64
        )
        ratios = self._exact(points) / points
        middle = (points[1:] * points[:-1]).sqrt()
        error = ((ratios[1:] + ratios[:-1]) / 2 - self._exact(middle) / middle).abs()
        beside = torch.maximum(F.pad(error, (0, 1)), F.pad(error, (1, 0)))
        lowered = ratios - 4 * beside
        lowered = lowered - 2e-7 * ratios.abs()
        lowered[0] = 1.01 * ratios[0]
        return lowered

    def _exact(self, u: Tensor) -> Tensor:
        """By bisection, in double precision."""
        low, high = -u, torch.zeros_like(u)
        at_u = self.f(u)
        for _ in range(60):
            middle = (low + high) / 2
            ok = self.f(middle) + self.df(middle) * (u - middle) <= at_u
            low, high = torch.where(ok, middle, low), torch.where(ok, high, middle)
        return low
