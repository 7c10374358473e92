"""The lower and the upper line of a function over an interval."""

from __future__ import annotations

import torch

from boundlab.kernels.reductions import spares
from boundlab.relaxations.interval import Interval
from boundlab.rules.curves.curve import Curve, Function, Line, derivative_of, interval
from boundlab.rules.curves.envelope import checked, supporting_slope
from boundlab.rules.curves.s_shaped import s_shaped, s_shaped_pair
from boundlab.rules.curves.tangents import chord, lowered, tangent


def lines(f: Function, curve: Curve, x: Interval) -> tuple[Line, Line]:
    """A lower and an upper line of f on [l, u], elementwise; the tangent and the exact value where
    l == u."""
    if curve.kinds == ("convex", "concave") and curve.stationary is None and not curve.jumps:
        return s_shaped_pair(f, curve, x)
    lower = lower_line(f, curve, x)
    slope, intercept = lower_line(lambda t: -f(t), curve.negated(), x)
    return lower, (-slope, -intercept)


def lower_line(f: Function, curve: Curve, x: Interval) -> Line:
    slope, intercept = lowered(_lower_line(f, curve, x), x)
    # Where the slope is infinite (sqrt at 0) or overflows, the constant line through the least
    # value remains.
    good = torch.isfinite(slope) & torch.isfinite(intercept)
    if not spares(good):
        # what overflows is beyond all numbers, not infinite
        least = interval(f, curve, x).lower.clamp(max=torch.finfo(x.dtype).max)
        slope, intercept = torch.where(good, slope, 0), torch.where(good, intercept, least)
    return slope, intercept


def _lower_line(f: Function, curve: Curve, x: Interval) -> Line:
    df = derivative_of(f, curve)
    if curve.stationary is None:
        if curve.kinds == ("convex",):
            return tangent(f, df, x.centre, x)
        if curve.kinds == ("concave",):
            return chord(f, df, x)
        if curve.kinds == ("convex", "concave"):
            return s_shaped(f, df, x, curve.breaks[0], curve.touching)
        if curve.kinds == ("concave", "convex"):
            turned, slope_of_turned = lambda t: f(-t), lambda t: -df(-t)
            mirrored, at = Interval(-x.upper, -x.lower), -curve.breaks[0]
            slope, intercept = s_shaped(turned, slope_of_turned, mirrored, at, curve.touching)
            return -slope, intercept
    return checked(f, df, curve, x, supporting_slope(f, df, curve, x))
