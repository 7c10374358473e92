"""Norm balls, one per sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.coefficients.dense import inner
from boundlab.coefficients.outer import Outer, norm
from boundlab.coefficients.window import Window
from boundlab.errors import ArgumentError
from boundlab.regions.base import Region, batch_size, drawn, flat_beside, take_samples
from boundlab.regions.boxes import Box, check_not_empty, cut, inside
from boundlab.regions.checks import Number, centre_tensor, given, radius, spread
from boundlab.regions.cut_balls import (
    dual_order,
    over_cut_ball,
    over_cut_diamond,
    over_seen_box,
    sums,
)
from boundlab.relaxations.interval import DualRadius, Interval


class _Ball(Region):
    """All x with ``||(x - centre) / eps||_p <= 1`` per sample, cut to a valid range if one is
    given.

    With one eps for all elements this is the usual ball of radius eps. A different eps per element
    stretches it; an element with eps 0 does not move. For a ball cut by a valid range the linear
    minimum is that over their intersection.
    """

    x: Tensor | None
    eps: Number
    lower: Number | None
    upper: Number | None

    def samples(self, chosen: slice | Tensor) -> Region:
        return take_samples(self, chosen)

    def contains(self, x: Tensor, tolerance: float = 0.0) -> Tensor:
        centre, flat = given(self.x), x.reshape(len(x), -1).double()
        eps = flat_beside(radius(self.eps, centre).expand(centre.shape), flat)
        away = ((flat - flat_beside(centre, flat)).abs() - tolerance).clamp(min=0)
        still = (away == 0) | (eps > 0)
        reach = norm(away / torch.where(eps > 0, eps, 1), self.order)
        return inside(self.hull(), flat, tolerance) & still.all(1) & (reach <= 1)

    def project(self, x: Tensor) -> Tensor:
        """Towards the centre until the ball is reached, and then into the valid range: if that
        holds the centre, every element moves towards it, so that the point stays in the ball."""
        centre = given(self.x)
        eps = radius(self.eps, centre).expand(centre.shape)
        still = eps <= 0
        away = torch.where(still, 0, x - centre)
        reach = norm((away / torch.where(still, 1, eps)).flatten(1), self.order)
        scale = reach.clamp(min=1).reshape(-1, *[1] * (centre.dim() - 1))
        hull = self.hull()
        return torch.minimum(torch.maximum(centre + away / scale, hull.lower), hull.upper)

    @property
    def order(self) -> float:
        raise NotImplementedError

    def _check(self) -> None:
        if not self.order >= 1:
            raise ArgumentError(
                f"p must be at least 1 (use L0 for a number of changed elements), not {self.order}"
            )
        if self.x is not None:
            centre_tensor(self.x)
            check_not_empty(cut(self.x, radius(self.eps, self.x), self.lower, self.upper))
        elif not isinstance(self.eps, Tensor):
            radius(self.eps, torch.zeros(()))

    @property
    def centre(self) -> Tensor:
        return given(self.x)

    def hull(self) -> Interval:
        x = given(self.x)
        return cut(x, radius(self.eps, x), self.lower, self.upper)

    @property
    def _dual(self) -> float:
        return dual_order(self.order)

    @property
    def _is_whole(self) -> bool:
        """Whether nothing is cut off."""
        return self.lower is None and self.upper is None

    @property
    def _is_plain(self) -> bool:
        """Whether one radius serves for all elements and samples, and nothing is cut off."""
        return self._is_whole and (not isinstance(self.eps, Tensor) or self.eps.numel() == 1)

    def _plain_radius(self, like: Tensor) -> Tensor:
        """The radius that serves for all, as a number beside another tensor."""
        return torch.as_tensor(self.eps, dtype=like.dtype, device=like.device).reshape(())

    def reach(self) -> DualRadius | None:
        """eps ||a||_q. For p = 1 that is the largest |a_i|, of which sums of powers give an upper
        bound: ||a||_8 >= ||a||_inf."""
        if not self._is_plain or self.order == math.inf:
            return None
        q = min(self._dual, 8.0)

        def distance(sums_of: Callable[[float], Tensor]) -> Tensor:
            powers = sums_of(q)
            # the gradient of a root of 0 is infinite
            norms = powers.clamp(min=torch.finfo(powers.dtype).tiny) ** (1 / q)
            return self._plain_radius(powers) * norms

        return distance

    @property
    def reach_is_exact(self) -> bool:
        return self._is_plain and 1 < self.order < math.inf and self._dual <= 8

    def least(self, rows: Coefficients) -> Tensor:
        """Rows that see a part of the value need no more of the set."""
        x = given(self.x)
        if isinstance(rows, Outer) and self._is_plain:
            return rows.dot(x) - self._plain_radius(x) * rows.norm(self._dual)
        if not isinstance(rows, Window) or not rows.places.sizes or self.order == math.inf:
            return super().least(rows)
        rows = rows.zero_padded()
        see = lambda tensor: rows.places.take(tensor.expand(x.shape))
        hull = None if self._is_whole else self.hull()
        seen = None if hull is None else Interval(see(hull.lower), see(hull.upper))
        return self._minimum(rows.values, see(x), see(radius(self.eps, x)), seen)

    def minimum(self, coefficients: Tensor) -> Tensor:
        """Hoelder: min over the ball is <c, centre> - ||eps c||_q with 1/p + 1/q = 1."""
        x = given(self.x)
        if math.prod(coefficients.shape[2:]) == 0:
            return inner(coefficients, x)
        eps = radius(self.eps, x).expand(x.shape)
        box = None
        if not self._is_whole:
            box = self.hull()
        if coefficients.dim() > 2:
            return self._minimum(coefficients, x, eps, box)
        if box is not None:  # of single numbers: vectors of one element
            box = Interval(box.lower.unsqueeze(-1), box.upper.unsqueeze(-1))
        return self._minimum(coefficients.unsqueeze(2), x.unsqueeze(-1), eps.unsqueeze(-1), box)

    def _minimum(self, c: Tensor, x: Tensor, eps: Tensor, hull: Interval | None) -> Tensor:
        """The same for what some rows (rows, samples, *shape) see of the set."""
        centre = sums(c, x)
        over_ball = centre - norm((c * eps).flatten(2), self._dual)
        if hull is None:
            return over_ball
        found = torch.maximum(over_ball, over_seen_box(c, hull))
        if self.order == math.inf:
            return found
        if self.order == 1:
            limits = Interval(hull.lower - x, hull.upper - x)
            both = over_cut_diamond(c, centre, eps, limits)
        else:
            both = over_cut_ball(self.order, c, x, eps, hull)
        return torch.maximum(found, both)

    def wider(self) -> tuple[Region, ...]:
        if self._is_whole or self.order == math.inf:
            return ()
        hull = self.hull()
        return self._uncut(), Box(hull.lower, hull.upper)

    def _uncut(self) -> Region:
        raise NotImplementedError

    def sample(self, generator: torch.Generator | None = None, batched: bool = True) -> Tensor:
        """A point of the ball (of every radius up to the boundary), moved into the valid range.

        Cutting to a range that holds the centre moves every element towards it, so the point stays
        in the ball.
        """
        x = given(self.x)
        batch = batch_size(x, batched)
        flat = drawn(torch.randn, (batch, x.numel() // max(batch, 1)), generator, x)
        length = drawn(torch.rand, (batch, 1), generator, x)
        if flat.shape[1]:
            size = norm(flat, self.order).unsqueeze(1).clamp(min=torch.finfo(x.dtype).tiny)
            flat = flat / size * length
        point = x + flat.reshape(x.shape) * radius(self.eps, x)
        if self.lower is not None:
            point = torch.maximum(point, spread(self.lower, x, "lower"))
        if self.upper is not None:
            point = torch.minimum(point, spread(self.upper, x, "upper"))
        return point


@dataclass(frozen=True, eq=False)
class L2(_Ball):
    """The Euclidean ball of radius eps around x, per sample."""

    x: Tensor | None = None
    eps: Number = 0.0
    lower: Number | None = None
    upper: Number | None = None

    def __post_init__(self) -> None:
        self._check()

    @property
    def order(self) -> float:
        return 2.0

    def _uncut(self) -> L2:
        return L2(self.x, self.eps)

    def at(self, value: Tensor) -> L2:
        if self.x is not None:
            return self
        return L2(value, self.eps, self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class L1(_Ball):
    """The ball of radius eps around x in the sum of absolute values, per sample."""

    x: Tensor | None = None
    eps: Number = 0.0
    lower: Number | None = None
    upper: Number | None = None

    def __post_init__(self) -> None:
        self._check()

    @property
    def order(self) -> float:
        return 1.0

    def _uncut(self) -> L1:
        return L1(self.x, self.eps)

    def at(self, value: Tensor) -> L1:
        if self.x is not None:
            return self
        return L1(value, self.eps, self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class Lp(_Ball):
    """The ball of radius eps around x in the p-norm, p >= 1 (infinity allowed), per sample."""

    x: Tensor | None = None
    p: float = 2.0
    eps: Number = 0.0
    lower: Number | None = None
    upper: Number | None = None

    def __post_init__(self) -> None:
        try:
            float(self.p)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"p must be a number such as 2 or math.inf, not {self.p!r}"
            ) from None
        self._check()

    @property
    def order(self) -> float:
        return float(self.p)

    @property
    def is_box(self) -> bool:
        return self.order == math.inf

    def _uncut(self) -> Lp:
        return Lp(self.x, self.p, self.eps)

    def at(self, value: Tensor) -> Lp:
        if self.x is not None:
            return self
        return Lp(value, self.p, self.eps, self.lower, self.upper)
