"""Lower lines of any function of known shape, from its convex envelope."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.rules.curves.curve import Curve, Function, Line, halvings, jump, nearest
from boundlab.rules.curves.tangents import secant


def checked(f: Function, df: Function, curve: Curve, x: Interval, slope: Tensor) -> Line:
    """The highest lower line of this slope."""
    points = [x.lower, x.upper, *(nearest(at, x) for at in curve.breaks)]
    jumps = [jump(f, at, value, x) for at, value in curve.jumps]
    levels = [f(p) - slope * p for p in points]
    levels += [value - slope * p for p, value in jumps]
    if curve.stationary is not None:
        found = curve.stationary(slope, x.lower, x.upper)
        inside = [torch.minimum(torch.maximum(p, x.lower), x.upper) for p in found]
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
        for _ in range(halvings(left.dtype)):
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
    l, u = x.lower, x.upper
    with torch.no_grad():
        chords = Chords(f, x, x.centre, [jump(f, at, value, x) for at, value in curve.jumps])
        p, q, jumped = chords.on_grid([nearest(at, x) for at in curve.breaks], smooth)
        if smooth:
            p, q, jumped = chords.closer(p, q)
    # Where the touching points are the ends of the interval they move with it; elsewhere the slope
    # does not change to first order when they do.
    p_live = torch.where(p == l, x.lower, p)
    q_live = torch.where(q == u, x.upper, q)
    slope = secant(f, df, p_live, q_live)
    if smooth:
        slope = torch.where((p == q), df(x.centre), slope)
    return torch.where(torch.isnan(jumped), slope, jumped)


Pair = tuple[Tensor, Tensor, Tensor]
"""The points p <= m <= q of a chord; third, its slope if an end is a jump, else NaN."""


@dataclass(frozen=True, eq=False)
class Chords:
    """Chords of f with ends on both sides of the midpoints m of intervals x.

    jumps: the points where f jumps, with a one-sided value each, which may be ends too.
    """

    f: Function
    x: Interval
    m: Tensor
    jumps: list[tuple[Tensor, Tensor]]

    def on_grid(self, breaks: list[Tensor], smooth: bool) -> Pair:
        """The lowest chord between ends, breaks and jumps; of a smooth function between the points
        of a grid, too."""
        l, u = self.x.lower, self.x.upper
        m = self.m
        fixed = [l, u, *breaks]
        left = [m, *(torch.minimum(p, m) for p in fixed)]
        right = [m, *(torch.maximum(p, m) for p in fixed)]
        if smooth:
            steps = [i / 8 for i in range(1, 8)]
            left += [l + (m - l) * t for t in steps]
            right += [m + (u - m) * t for t in steps]
        return self._lowest(left, right)

    def closer(self, p: Tensor, q: Tensor) -> Pair:
        """The lowest chord, looked for ever closer around the one from p to q."""
        l, u = self.x.lower, self.x.upper
        m = self.m
        near = [-1.0, -0.5, 0.0, 0.5, 1.0]
        reach = (u - l) / 16
        for _ in range(_rounds(l.dtype)):
            left = [m, *(torch.minimum(torch.maximum(p + reach * t, l), m) for t in near)]
            right = [m, *(torch.maximum(torch.minimum(q + reach * t, u), m) for t in near)]
            p, q, jumped = self._lowest(left, right)
            reach = reach / 2
        return p, q, jumped

    def _lowest(self, left: list[Tensor], right: list[Tensor]) -> Pair:
        """The chord that is lowest at m, from a point of ``left`` or a jump to a point of ``right``
        or a jump. m itself is first in both lists, and chosen unless another pair is clearly
        lower."""
        f, m = self.f, self.m
        jumps, values = [at for at, _ in self.jumps], [value for _, value in self.jumps]
        p = torch.stack(left + jumps)[:, None]
        q = torch.stack(right + jumps)[None]
        fp = torch.stack([f(t) for t in left] + values)[:, None]
        fq = torch.stack([f(t) for t in right] + values)[None]
        gap = q - p
        share = torch.where(gap > 0, (m - p) / torch.where(gap > 0, gap, 1), 0)
        height = fp + (fq - fp) * share
        # Either m lies strictly between the points, or both are m; a chord that merely ends at m
        # has no say in the slope.
        around = ((p < m) & (m < q)) | ((p == m) & (q == m))
        height = torch.where(around, height, torch.inf)
        height[0, 0] -= 4 * torch.finfo(m.dtype).eps * (1 + fp[0, 0].abs())
        flat = height.flatten(0, 1).nan_to_num(nan=torch.inf)
        best = flat.argmin(0, keepdim=True)
        i, j = best // height.shape[1], best % height.shape[1]
        p, fp = p.squeeze(1).gather(0, i)[0], fp.squeeze(1).gather(0, i)[0]
        q, fq = q.squeeze(0).gather(0, j)[0], fq.squeeze(0).gather(0, j)[0]
        jumped = (i[0] >= len(left)) | (j[0] >= len(right))
        slope = torch.where(q > p, (fq - fp) / torch.where(q > p, q - p, 1), 0)
        return p, q, torch.where(jumped, slope, torch.nan)


def _rounds(dtype: torch.dtype) -> int:
    """How often the search for the lowest chord goes closer, by half each time."""
    if dtype == torch.float64:
        return 24
    return 10
