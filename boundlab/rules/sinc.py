"""sinc(x) = sin(pi x) / (pi x).

It is the mean of cos(pi x t) over t in [0, 1], so that its second derivative is at most pi^2 / 3 in
size: over [m - r, m + r] it is within pi^2 r^2 / 6 of its tangent at m. Its range is that of its
values at the ends and at its turns, the roots of tan(pi x) = pi x: one in each (k, k + 1/2). Behind
those of the table only |sinc(x)| <= 1 / (pi |x|) is used.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.curves import ROOM, Curve
from boundlab.rules.curves import interval as range_of
from boundlab.rules.registry import Call, Relaxed, aten, register


def _turn(k: int) -> float:
    """The root of tan(pi x) = pi x in (k, k + 1/2), by iteration of its inverse, which contracts:
    its slope is 1 / (1 + (pi x)^2)."""
    x = k + 0.5
    for _ in range(60):
        x = k + math.atan(math.pi * x) / math.pi
    return x


TURNS = tuple(_turn(k) for k in range(1, 13))
CURVE = Curve(("linear",), turns=(0.0, *TURNS, *(-turn for turn in TURNS)))
"""Of which only the turns are used."""


def _interval(call: Call) -> Interval:
    (x,) = call.inputs
    # pi x must be a number; so far out the function is as good as 0
    largest = torch.finfo(x.dtype).max / 4
    inner = Interval(x.lower.clamp(-largest, largest), x.upper.clamp(-largest, largest))
    found = range_of(torch.sinc, CURVE, inner)
    # what lies behind the last turn of the table, and how large the function is there at most
    last = TURNS[-1]
    beyond = torch.maximum(x.upper, -x.lower) > last
    nearest = torch.maximum(x.lower, -x.upper).clamp(min=last)
    least = (1 + 8 * torch.finfo(x.dtype).eps) / (math.pi * nearest)
    beyond = beyond & (x.lower < x.upper)
    low = torch.where(beyond, torch.minimum(found.lower, -least), found.lower)
    up = torch.where(beyond, torch.maximum(found.upper, least), found.upper)
    return Interval(low, up)


NEAR = 1e-3


def _slope(m: Tensor) -> Tensor:
    """(cos(pi x) - sinc(x)) / x, by its series where both almost agree; any slope that is almost
    the derivative will do, if the tangent leaves room for it."""
    near = m.abs() < NEAR
    away = torch.where(near, 1, m)
    return torch.where(near, -(math.pi**2) / 3 * m, (torch.cos(math.pi * m) - torch.sinc(m)) / away)


def _lines(call: Call) -> Relaxation:
    (x,) = call.inputs
    ends = _interval(call)
    m, r = x.centre, torch.maximum(x.upper - x.centre, x.centre - x.lower)
    slope = _slope(m.detach())
    eps = torch.finfo(x.dtype).eps
    # the slope is off by what rounding does to cos and sinc, over m; near 0 by pi^4 m^3 / 30
    near = m.abs() < NEAR
    wrong = 16 * eps + torch.where(near, 4 * NEAR**3, 4 * eps / torch.where(near, 1, m.abs()))
    room = math.pi**2 / 6 * r * r + r * wrong + ROOM * eps * (1 + m.abs())
    level = torch.sinc(m) - slope * m
    low, up = level - room, level + room
    flat = (torch.sinc(m) - room <= ends.lower) & (torch.sinc(m) + room >= ends.upper)
    flat = flat | ~torch.isfinite(low + up) | (ends.lower == ends.upper)
    slope = torch.where(flat, 0, slope)
    low, up = torch.where(flat, ends.lower, low), torch.where(flat, ends.upper, up)
    return Lines((slope,), low, (slope,), up, (x.shape,))


register(aten.sinc, rule=Relaxed(_interval, _lines, kind="elementwise"))
