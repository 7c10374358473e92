"""Lower lines of any function of known shape, from its convex envelope."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.rules.curves.curve import Curve, Function, Line, jump, nearest
from boundlab.rules.curves.tangents import secant


def checked(f: Function, df: Function, curve: Curve, x: Interval, slope: Tensor) -> Line:
    """The highest lower line of this slope."""
    points = [x.lower, x.upper, *(nearest(at, x) for at in curve.breaks)]
    levels = [f(p) - slope * p for p in points]
    levels += [
        value - slope * p for p, value in (jump(f, at, value, x) for at, value in curve.jumps)
    ]
    if curve.stationary is not None:
        inside = [
            torch.minimum(torch.maximum(p, x.lower), x.upper)
            for p in curve.stationary(slope, x.lower, x.upper)
        ]
        levels += [f(p) - slope * p for p in inside]
    else:
        edges = [x.lower, *points[2:], x.upper]
        for kind, left, right in zip(curve.kinds, edges, edges[1:], strict=False):
            if kind == "convex":
                levels.append(_least_in_convex_piece(f, df, slope, left, right))
    least = levels[0]
    for level in levels[1:]:
        least = torch.fmin(least, level)
    return slope, least


def _least_in_convex_piece(
    f: Function, df: Function, slope: Tensor, left: Tensor, right: Tensor
) -> Tensor:
    """min of f(x) - slope x for left <= x <= right, f convex there, never overestimated.

    f' grows, so bisection on f' = slope brackets the minimum; from the left end p of the bracket, f
    lies above its tangent, which falls by at most (slope - f'(p)) times the length of the bracket.
    """
    with torch.no_grad():
        low, high = left, right
        for _ in range(54 if left.dtype == torch.float64 else 26):
            middle = (low + high) / 2
            below = df(middle) < slope
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        drop = (slope - df(low)).clamp(min=0) * (high - low)
    return f(low) - slope * low - drop


def supporting_slope(f: Function, df: Function, curve: Curve, x: Interval) -> Tensor:
    """The slope of the convex envelope at the midpoint, from the pair of points p <= m <= q whose
    chord is lowest at m.

    The pair is looked for on a grid (with breaks and jumps), then ever closer around the best one.
    Any slope is sound.
    """
    smooth = set(curve.kinds) != {"linear"} or curve.stationary is not None
    with torch.no_grad():
        l, u = x.lower, x.upper
        m = x.centre
        jumps = [jump(f, at, value, x) for at, value in curve.jumps]
        fixed = [l, u, *(nearest(at, x) for at in curve.breaks)]
        steps = [i / 8 for i in range(1, 8)] if smooth else []
        left = [m, *(torch.minimum(p, m) for p in fixed), *(l + (m - l) * t for t in steps)]
        right = [m, *(torch.maximum(p, m) for p in fixed), *(m + (u - m) * t for t in steps)]
        p, q, jumped = _lowest_pair(f, left, right, jumps, m)
        reach = (u - l) / 16
        rounds = 24 if l.dtype == torch.float64 else 10
        for _ in range(rounds if smooth else 0):
            near = [-1.0, -0.5, 0.0, 0.5, 1.0]
            left = [m, *(torch.minimum(torch.maximum(p + reach * t, l), m) for t in near)]
            right = [m, *(torch.maximum(torch.minimum(q + reach * t, u), m) for t in near)]
            p, q, jumped = _lowest_pair(f, left, right, jumps, m)
            reach = reach / 2
    # Where the touching points are the ends of the interval they move with it; elsewhere the slope
    # does not change to first order when they do.
    p_live = torch.where(p == l, x.lower, p)
    q_live = torch.where(q == u, x.upper, q)
    slope = secant(f, df, p_live, q_live)
    if smooth:
        slope = torch.where((p == q), df(x.centre), slope)
    return torch.where(torch.isnan(jumped), slope, jumped)


def _lowest_pair(
    f: Function,
    left: list[Tensor],
    right: list[Tensor],
    jumps: list[tuple[Tensor, Tensor]],
    m: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The points p <= m <= q whose chord is lowest at m (m itself first in both lists, and chosen
    unless another pair is clearly lower); third, the slope itself if an end is a jump, else NaN."""
    count = len(left), len(right)
    p = torch.stack(left + [at for at, _ in jumps])[:, None]
    q = torch.stack(right + [at for at, _ in jumps])[None]
    fp = torch.stack([f(t) for t in left] + [value for _, value in jumps])[:, None]
    fq = torch.stack([f(t) for t in right] + [value for _, value in jumps])[None]
    gap = q - p
    share = torch.where(gap > 0, (m - p) / torch.where(gap > 0, gap, 1), 0)
    height = fp + (fq - fp) * share
    # Either m lies strictly between the points, or both are m; a chord that merely ends at m has no
    # say in the slope.
    around = ((p < m) & (m < q)) | ((p == m) & (q == m))
    height = torch.where(around, height, torch.inf)
    height[0, 0] -= 4 * torch.finfo(m.dtype).eps * (1 + fp[0, 0].abs())
    flat = height.flatten(0, 1).nan_to_num(nan=torch.inf)
    best = flat.argmin(0, keepdim=True)
    i, j = best // height.shape[1], best % height.shape[1]
    pick = lambda t, k: t.squeeze(0 if t.shape[0] == 1 else 1).gather(0, k)[0]
    p, fp = pick(p, i), pick(fp, i)
    q, fq = pick(q, j), pick(fq, j)
    jumped = (i[0] >= count[0]) | (j[0] >= count[1])
    slope = torch.where(q > p, (fq - fp) / torch.where(q > p, q - p, 1), 0)
    return p, q, torch.where(jumped, slope, torch.nan)
