"""Norm balls, one per sample."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.outer import Outer, norm
from boundlab.coefficients.window import Window
from boundlab.errors import ArgumentError
from boundlab.regions.base import Region, drawn, inner, over_box, take_samples
from boundlab.regions.boxes import Box, check_not_empty, cut
from boundlab.regions.checks import Number, centre_tensor, given, radius, spread
from boundlab.relaxations.interval import DualRadius, Interval


def _sums(c: Tensor, value: Tensor) -> Tensor:
    """<c, value> per row and sample: (rows, samples, *shape), and a value for all rows or for each
    of them -> (rows, samples)."""
    return (c * value).flatten(2).sum(2) if value.dim() == c.dim() else inner(c, value)


def _over_box(c: Tensor, box: Interval) -> Tensor:
    """The least <c, value> over a box that is the same for all rows, or that each of them sees."""
    return (
        over_box(c, box)
        if len(box.shape) < c.dim()
        else _sums(c, box.centre) - _sums(c.abs(), box.radius)
    )


ROUNDS = 5
"""How often the multiplier of a ball that is cut is corrected. Every multiplier is sound."""


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
        return (
            1.0
            if self.order == math.inf
            else math.inf
            if self.order == 1
            else self.order / (self.order - 1)
        )

    @property
    def _is_plain(self) -> bool:
        """Whether one radius serves for all elements and samples, and nothing is cut off."""
        return (
            self.lower is None
            and self.upper is None
            and (not isinstance(self.eps, Tensor) or self.eps.numel() == 1)
        )

    def reach(self) -> DualRadius | None:
        """eps ||a||_q. For p = 1 that is the largest |a_i|, of which sums of powers give an upper
        bound: ||a||_8 >= ||a||_inf."""
        if not self._is_plain or self.order == math.inf:
            return None
        q = min(self._dual, 8.0)
        eps = lambda like: torch.as_tensor(self.eps, dtype=like.dtype, device=like.device).reshape(
            ()
        )
        return lambda sums: (
            eps(found := sums(q)) * found.clamp(min=torch.finfo(found.dtype).tiny) ** (1 / q)
        )

    @property
    def reach_is_exact(self) -> bool:
        return self._is_plain and 1 < self.order < math.inf and self._dual <= 8

    def least(self, rows: Tensor | Outer | Window) -> Tensor:
        """Rows that see a part of the value need no more of the set."""
        x = given(self.x)
        if isinstance(rows, Outer) and self._is_plain:
            return rows.dot(x) - torch.as_tensor(self.eps, dtype=x.dtype, device=x.device).reshape(
                ()
            ) * rows.norm(self._dual)
        if not isinstance(rows, Window) or not rows.places.sizes or self.order == math.inf:
            return super().least(rows)
        rows = rows.zero_padded()
        see = lambda tensor: rows.places.take(tensor.expand(x.shape))
        hull = None if self._is_whole else self.hull()
        seen = None if hull is None else Interval(see(hull.lower), see(hull.upper))
        return self._minimum(rows.values, see(x), see(radius(self.eps, x)), seen)

    @property
    def _is_whole(self) -> bool:
        return self.lower is None and self.upper is None

    def minimum(self, coefficients: Tensor) -> Tensor:
        """Hoelder: min over the ball is <c, centre> - ||eps c||_q with 1/p + 1/q = 1."""
        x = given(self.x)
        if coefficients.dim() == 2:  # of single numbers
            eps, hull = radius(self.eps, x).expand(x.shape), self.hull()
            box = (
                None
                if self._is_whole
                else Interval(hull.lower.unsqueeze(-1), hull.upper.unsqueeze(-1))
            )
            return self._minimum(coefficients.unsqueeze(2), x.unsqueeze(-1), eps.unsqueeze(-1), box)
        if math.prod(coefficients.shape[2:]) == 0:
            return inner(coefficients, x)
        return self._minimum(
            coefficients,
            x,
            radius(self.eps, x).expand(x.shape),
            None if self._is_whole else self.hull(),
        )

    def _minimum(self, c: Tensor, x: Tensor, eps: Tensor, hull: Interval | None) -> Tensor:
        """The same for what some rows (rows, samples, *shape) see of the set."""
        centre = _sums(c, x)
        over_ball = centre - norm((c * eps).flatten(2), self._dual)
        if hull is None:
            return over_ball
        found = torch.maximum(over_ball, _over_box(c, hull))
        if self.order == math.inf:
            return found
        limits = hull.lower - x, hull.upper - x
        both = (
            self._greedy(c, centre, eps, limits)
            if self.order == 1
            else self._over_both(c, x, eps, hull, limits)
        )
        return torch.maximum(found, both)

    def _greedy(
        self, c: Tensor, centre: Tensor, eps: Tensor, limits: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The minimum over what the ball and the box have in common, for p = 1: the elements that
        give most, |c| eps for the whole radius, move first, each as far as the box lets it, until
        the radius is used up. For a centre outside the box minus infinity."""
        low, up = limits
        inside = ((low <= 0) & (up >= 0)).expand(c.shape).flatten(2).all(2)
        reach = (torch.where(c > 0, -low, up) / eps.clamp(min=torch.finfo(c.dtype).tiny)).flatten(2)
        gains, order = (c * eps).abs().flatten(2).sort(2, descending=True)
        most = reach.gather(2, order).clamp(0, 1)
        before = most.cumsum(2) - most
        taken = torch.minimum(most, (1 - before).clamp(min=0))
        return torch.where(inside, centre - (gains * taken).sum(2), -math.inf)

    def _over_both(
        self, c: Tensor, x: Tensor, eps: Tensor, hull: Interval, limits: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The minimum over what the ball and the box have in common, for 1 < p < infinity.

        With c = g + h it is at least the minimum of <g, .> over the ball plus that of <h, .> over
        the box, for every g, and equals it for the best one. A minimiser d solves min <c, d> + t
        ||d / eps||_p^p in the box for a multiplier t, so that d = clamp(s v, box) with v the
        minimiser over the ball and a number s; g belongs to those d that the box leaves free, and
        goes on behind its ends: g_i = c_i (|d_i| / |s v_i|)^(p - 1). s grows from 1 while the
        elements that are clamped leave room in the ball for the others.
        """
        with torch.no_grad():
            share = self._shares(c.detach(), eps, limits)
        ball = c * share
        return (
            _sums(ball, x) - norm((ball * eps).flatten(2), self._dual) + _over_box(c - ball, hull)
        )

    def _shares(self, c: Tensor, eps: Tensor, limits: tuple[Tensor, Tensor]) -> Tensor:
        """g / c. Element i is clamped once s exceeds its own s_i = limit / v; before, it takes s^p
        |v / eps|^p of the ball, and (limit / eps)^p from then on."""
        p, q, tiny = self.order, self._dual, torch.finfo(c.dtype).tiny
        power = (lambda t: t * t) if p == 2 else (lambda t: t**p)
        scaled = (c * eps).abs_()
        size = (
            norm(scaled.flatten(2), q).clamp(min=tiny).reshape(*c.shape[:2], *[1] * (c.dim() - 2))
        )
        length = scaled.div_(size)  # |v| / eps
        length = length if q == 2 else length ** (q - 1)
        # how far it may go, in the direction of v
        limit = torch.where(c > 0, -limits[0], limits[1]) / eps.clamp(min=tiny)
        until = (limit / length.clamp(min=tiny)).clamp_(min=0)
        taken, used = power(length), power(limit.clamp(min=0))
        dims = tuple(range(2, c.dim()))
        s, all_used = torch.ones_like(size), used.sum(dims, keepdim=True)
        for _ in range(ROUNDS):
            free = (until > s).to(c.dtype)
            room = 1 - all_used + (used * free).sum(dims, keepdim=True)
            rest = (taken * free).sum(dims, keepdim=True)
            s = torch.where(
                (room > 0) & (rest > 0), (room / rest.clamp(min=tiny)).clamp(min=0) ** (1 / p), s
            )
        share = (until / s).clamp_(max=1)
        return share if p == 2 else share ** (p - 1)

    def wider(self) -> tuple[Region, ...]:
        if (self.lower is None and self.upper is None) or self.order == math.inf:
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
        batch = x.shape[0] if batched and x.dim() else 1
        flat = drawn(torch.randn, (batch, x.numel() // max(batch, 1)), generator, x)
        size = (
            norm(flat, self.order).unsqueeze(1) if flat.shape[1] else torch.ones_like(flat[:, :1])
        )
        length = drawn(torch.rand, (batch, 1), generator, x)
        step = (flat / size.clamp(min=torch.finfo(x.dtype).tiny) * length).reshape(
            x.shape
        ) * radius(self.eps, x)
        point = x + step
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
        return self if self.x is not None else L2(value, self.eps, self.lower, self.upper)


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
        return self if self.x is not None else L1(value, self.eps, self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class Lp(_Ball):
    """The ball of radius eps around x in the p-norm, p >= 1 (infinity allowed), per sample."""

    x: Tensor | None = None
    p: float = 2.0
    eps: Number = 0.0
    lower: Number | None = None
    upper: Number | None = None

    def __post_init__(self) -> None:
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
        return self if self.x is not None else Lp(value, self.p, self.eps, self.lower, self.upper)
