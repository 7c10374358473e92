"""Lower lines of S-shaped functions, convex first and then concave."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.kernels.reductions import spares
from boundlab.relaxations.interval import Interval
from boundlab.rules.curves.curve import Curve, Function, Line, derivative_of, halvings
from boundlab.rules.curves.tangents import below_ends, chord, lowered


def s_shaped_pair(f: Function, curve: Curve, x: Interval) -> tuple[Line, Line]:
    """Both lines of an S-shaped function at once: -f(-t) is one too, and s t + b below it on [-u,
    -l] is s t - b above f."""
    df = derivative_of(f, curve)
    sign = torch.tensor([1.0, -1.0], dtype=x.dtype, device=x.device)
    sign = sign.reshape(2, *[1] * len(x.shape))
    both = Interval(torch.stack([x.lower, -x.upper]), torch.stack([x.upper, -x.lower]))

    def mirrored(t: Tensor) -> Tensor:
        return sign * f(sign * t)

    def slope_of_mirrored(t: Tensor) -> Tensor:
        return df(sign * t)

    at = sign * curve.breaks[0]
    slope, intercept = _finite(mirrored, slope_of_mirrored, both, at, curve.touching)
    return (slope[0], intercept[0]), (slope[1], -intercept[1])


def _finite(
    f: Function, df: Function, x: Interval, at: Tensor | float, touching: Function | None
) -> Line:
    """The lower line of :func:`s_shaped`, or a constant where that is not finite."""
    slope, intercept = lowered(s_shaped(f, df, x, at, touching), x)
    good = torch.isfinite(slope) & torch.isfinite(intercept)
    if not spares(good):  # as in lower_line
        least = torch.minimum(f(x.lower), f(x.upper))
        slope, intercept = torch.where(good, slope, 0), torch.where(good, intercept, least)
    return slope, intercept


def s_shaped(
    f: Function, df: Function, x: Interval, at: Tensor | float, touching: Function | None
) -> Line:
    """f convex left of ``at``, concave right of it.

    The tangent at d (in the convex part) is a lower line iff it passes below (u, f(u)); since its
    value at u grows with d, that holds up to some d*. The supporting line of the envelope at m
    touches at min(m, d*); if even d = l fails, the envelope is the chord.
    """
    l, u = x.lower, x.upper
    m = x.centre
    straight = chord(f, df, x)
    last = last_touching(f, df, x, at, touching)
    with torch.no_grad():
        bends = may_bend(df, x, at, straight[0])
        free = last >= m  # and that at m
    point = torch.where(free, m, torch.maximum(last, l).detach())
    slope = df(point)
    if u.requires_grad:
        # Limited by (u, f(u)), the slope moves with u as that of a line from there to a fixed
        # point: to first order it does not change when the touching point moves.
        with torch.no_grad():
            gap = torch.where(free | (u <= point), 1, u - point)
            turn = torch.where(free, 0, (df(u) - slope) / gap)
        slope = slope + turn * (u - u.detach())
    intercept = below_ends(f, x, slope, f(point) - slope * point)  # whatever is rounded
    return torch.where(bends, slope, straight[0]), torch.where(bends, intercept, straight[1])


def may_bend(df: Function, x: Interval, at: Tensor | float, chord_slope: Tensor) -> Tensor:
    """Whether the tangent at l is a lower line; where it is not, the chord is. Not to be told from
    a point that lies below d*."""
    return (x.upper <= at) | ((x.lower < at) & (df(x.lower) <= chord_slope))


@torch.no_grad()
def last_touching(
    f: Function, df: Function, x: Interval, at: Tensor | float, touching: Function | None
) -> Tensor:
    """d*: the last point in the convex part whose tangent is a lower line; infinity where f is
    convex all along, minus infinity where there is no such point. Never too far right: by bisection
    where there is no table."""
    l, u = x.lower.detach(), x.upper.detach()
    if touching is not None:
        found = touching(u)
        if not torch.isneginf(found).any():
            return found
    at = torch.as_tensor(at, dtype=u.dtype, device=u.device).expand_as(u)
    below = lambda d: f(d) + df(d) * (u - d) <= f(u)
    starts = (l < at) & below(l)
    low = torch.where(starts, l, x.centre.detach())
    high = torch.where(starts, torch.minimum(u, at), x.centre.detach())
    for _ in range(halvings(l.dtype)):
        middle = (low + high) / 2
        ok = below(middle)
        low, high = torch.where(ok, middle, low), torch.where(ok, high, middle)
    return torch.where(u <= at, torch.inf, torch.where(starts, low, -torch.inf))
