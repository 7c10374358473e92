"""The minimum of linear functions over what a norm ball and a box have in common.

Coefficients c are (rows, samples, *shape); centre x, radii eps and the box are of the shape of the
value, the same for all rows, or (rows, samples, *shape), what each row sees of them. Minima are
(rows, samples).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundlab.coefficients.dense import inner, over_box
from boundlab.coefficients.outer import norm
from boundlab.relaxations.interval import Interval

ROUNDS = 5
"""How often the multiplier of a ball that is cut is corrected. Every multiplier is sound."""


def dual_order(order: float) -> float:
    """q with 1/p + 1/q = 1."""
    if order == math.inf:
        return 1.0
    if order == 1:
        return math.inf
    return order / (order - 1)


def sums(c: Tensor, value: Tensor) -> Tensor:
    """<c, value> per row and sample."""
    if value.dim() == c.dim():
        return (c * value).flatten(2).sum(2)
    return inner(c, value)


def over_seen_box(c: Tensor, box: Interval) -> Tensor:
    """The least <c, value> over a box."""
    if len(box.shape) < c.dim():
        return over_box(c, box)
    return sums(c, box.centre) - sums(c.abs(), box.radius)


def over_cut_diamond(c: Tensor, centre: Tensor, eps: Tensor, limits: Interval) -> Tensor:
    """For p = 1, with the box relative to the centre of the ball, ``limits``, and <c, x>,
    ``centre``: the elements that give most, |c| eps for the whole radius, move first, each as far
    as the box lets it, until the radius is used up. For a centre outside the box minus infinity."""
    low, up = limits.lower, limits.upper
    inside = ((low <= 0) & (up >= 0)).expand(c.shape).flatten(2).all(2)
    reach = torch.where(c > 0, -low, up) / eps.clamp(min=torch.finfo(c.dtype).tiny)
    gains, order = (c * eps).abs().flatten(2).sort(2, descending=True)
    most = reach.flatten(2).gather(2, order).clamp(0, 1)
    before = most.cumsum(2) - most
    taken = torch.minimum(most, (1 - before).clamp(min=0))
    return torch.where(inside, centre - (gains * taken).sum(2), -math.inf)


def over_cut_ball(order: float, c: Tensor, x: Tensor, eps: Tensor, box: Interval) -> Tensor:
    """For 1 < p < infinity, a lower bound that is exact for the best multiplier.

    With c = g + h the minimum is at least that of <g, .> over the ball plus that of <h, .> over the
    box, for every g, and equals it for the best one. A minimiser d solves min <c, d> + t
    ||d / eps||_p^p in the box for a multiplier t, so that d = clamp(s v, box) with v the minimiser
    over the ball and a number s; g belongs to those d that the box leaves free, and goes on behind
    its ends: g_i = c_i (|d_i| / |s v_i|)^(p - 1). s grows from 1 while the elements that are
    clamped leave room in the ball for the others.
    """
    with torch.no_grad():
        share = _shares(order, c.detach(), eps, Interval(box.lower - x, box.upper - x))
    g = c * share
    over_ball = sums(g, x) - norm((g * eps).flatten(2), dual_order(order))
    return over_ball + over_seen_box(c - g, box)


def _shares(p: float, c: Tensor, eps: Tensor, limits: Interval) -> Tensor:
    """g / c. Element i is clamped once s exceeds its own s_i = limit / v; before, it takes s^p
    |v / eps|^p of the ball, and (limit / eps)^p from then on."""
    q = dual_order(p)
    tiny = torch.finfo(c.dtype).tiny
    dims = tuple(range(2, c.dim()))
    scaled = (c * eps).abs_()
    size = norm(scaled.flatten(2), q).clamp(min=tiny).reshape(*c.shape[:2], *[1] * len(dims))
    length = _power(scaled.div_(size), q - 1)  # |v| / eps
    # how far it may go, in the direction of v
    limit = torch.where(c > 0, -limits.lower, limits.upper) / eps.clamp(min=tiny)
    until = (limit / length.clamp(min=tiny)).clamp_(min=0)
    taken, used = _power(length, p), _power(limit.clamp(min=0), p)
    s, all_used = torch.ones_like(size), used.sum(dims, keepdim=True)
    for _ in range(ROUNDS):
        free = (until > s).to(c.dtype)
        room = 1 - all_used + (used * free).sum(dims, keepdim=True)
        rest = (taken * free).sum(dims, keepdim=True)
        corrected = (room / rest.clamp(min=tiny)).clamp(min=0) ** (1 / p)
        s = torch.where((room > 0) & (rest > 0), corrected, s)
    share = (until / s).clamp_(max=1)
    return _power(share, p - 1)


def _power(values: Tensor, exponent: float) -> Tensor:
    """``values ** exponent``; of the Euclidean norm, whose exponents are 1 and 2, quicker."""
    if exponent == 1:
        return values
    if exponent == 2:
        return values * values
    return values**exponent
