"""Lower lines with a free number, for methods that choose it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.rules.curves.curve import Curve, Function, Line, derivative_of, interval
from boundlab.rules.curves.lower_lines import lower_line
from boundlab.rules.curves.s_shaped import last_touching, may_bend
from boundlab.rules.curves.tangents import chord, lowered

Family = tuple[Tensor, Callable[[Tensor], Line]]
"""A number in [0, 1] for each element, and the lower line for any such numbers."""


def lower_family(f: Function, curve: Curve, x: Interval) -> Family:
    """Lower lines of f for numbers in [0, 1], and the number of the one that :func:`lower_line`
    takes.

    Where f is convex or S-shaped, the number is the touching point between its first and its last
    possible place; elsewhere it goes from the constant line through the least value to the usual
    line.
    """
    if curve.stationary is None and curve.kinds == ("concave", "convex"):
        return _mirrored(f, curve, x)
    if curve.stationary is None and curve.kinds in (("convex",), ("convex", "concave")):
        return _by_touching_point(f, curve, x)
    return _towards_constant(f, curve, x)


def _mirrored(f: Function, curve: Curve, x: Interval) -> Family:
    """A line below f(-t) is one below f with the slope turned around."""
    df = derivative_of(f, curve)
    turned = replace(
        curve,
        kinds=("convex", "concave"),
        breaks=(-curve.breaks[0],),
        derivative=lambda t: -df(-t),
    )
    start, member = lower_family(lambda t: f(-t), turned, Interval(-x.upper, -x.lower))

    def back(alpha: Tensor) -> Line:
        slope, intercept = member(alpha)
        return -slope, intercept

    return start, back


def _by_touching_point(f: Function, curve: Curve, x: Interval) -> Family:
    """Tangents at a point between l and the last touching point; the chord where there is none."""
    df = derivative_of(f, curve)
    l, u = x.lower, x.upper
    straight_slope, straight_intercept = chord(f, df, x)
    if curve.kinds == ("convex",):
        bends, last = torch.ones_like(l, dtype=torch.bool), u.detach()
    else:
        found = last_touching(f, df, x, curve.breaks[0], curve.touching)
        bends = may_bend(df, x, curve.breaks[0], straight_slope.detach())
        last = torch.minimum(torch.maximum(found, l), u).detach()
    first = l.detach()
    least = interval(f, curve, x).lower
    reach = last - first
    at_l, at_u = f(l), f(u)
    usual = torch.minimum(x.centre.detach(), last) - first
    start = (usual / torch.where(reach > 0, reach, 1)).clamp(0, 1)

    def at_point(alpha: Tensor) -> Line:
        at = first + alpha * reach
        fixed = at.detach()  # f itself need not have a gradient: its derivative is at hand
        slope = df(at)
        intercept = f(fixed) + df(fixed).detach() * (at - fixed) - slope * at
        below_ends = torch.minimum(at_l - slope * l, at_u - slope * u)
        intercept = torch.minimum(intercept, below_ends)
        slope = torch.where(bends, slope, straight_slope)
        intercept = torch.where(bends, intercept, straight_intercept)
        slope, intercept = lowered((slope, intercept), x)
        good = torch.isfinite(slope) & torch.isfinite(intercept)
        return torch.where(good, slope, 0), torch.where(good, intercept, least)

    return start, at_point


def _towards_constant(f: Function, curve: Curve, x: Interval) -> Family:
    """Between the constant line through the least value and the usual line."""
    slope, intercept = lower_line(f, curve, x)
    least = interval(f, curve, x).lower

    def member(alpha: Tensor) -> Line:
        return lowered((alpha * slope, alpha * intercept + (1 - alpha) * least), x)

    return torch.ones_like(x.lower), member
