"""Lower and upper lines of a function of one variable, from where it is convex, concave or linear.

A :class:`Curve` cuts the real line at ``breaks`` into pieces of one kind each. Everything below is
written for lower lines: an upper line of f is minus a lower line of -f, whose convex pieces are the
concave ones of f.

The slope is that of the supporting line of the convex envelope of f at the midpoint m of [l, u],
which is the line of least area under f. The intercept for a slope a is min (f(x) - a x) over [l,
u], attained at l, at u, at a break, at a jump, or inside a convex piece where f' = a: finitely many
points, so the line is checked, not hoped for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from boundlab.kernels.reductions import spares
from boundlab.relaxations.interval import Interval

Function = Callable[[Tensor], Tensor]
Line = tuple[Tensor, Tensor]
"""Slope and intercept."""

ROOM = 4.0
"""How many times slope and argument are rounded, in making a line and in using it."""
OPPOSITE = {"convex": "concave", "concave": "convex", "linear": "linear"}


@dataclass(frozen=True, eq=False)
class Curve:
    """The shape of an elementwise function.

    kinds: "convex", "concave" or "linear" for each piece, one more than ``breaks``. turns: points
    where it changes between rising and falling. jumps: (point, one-sided value) pairs where it is
    discontinuous. domain: (lowest, highest, whether the ends belong to it). derivative: f', else
    autograd's. stationary: from slope, l, u all points of [l, u] where f' may equal the slope, if
    there is a closed form (then ``breaks`` may be incomplete). touching: for an S-shaped function
    that is point-symmetric about its break, the last touching point from u
    (:mod:`boundlab.rules.touching`).
    """

    kinds: tuple[str, ...]
    breaks: tuple[float, ...] = ()
    turns: tuple[float, ...] = ()
    jumps: tuple[tuple[float, float], ...] = ()
    domain: tuple[float, float, bool] | None = None
    derivative: Function | None = None
    stationary: Callable[[Tensor, Tensor, Tensor], list[Tensor]] | None = field(default=None)
    touching: Function | None = None

    def __post_init__(self) -> None:
        assert len(self.kinds) == len(self.breaks) + 1 and set(self.kinds) <= set(OPPOSITE)

    def negated(self) -> Curve:
        """The shape of -f."""
        derivative = self.derivative
        return replace(
            self,
            kinds=tuple(OPPOSITE[kind] for kind in self.kinds),
            jumps=tuple((at, -value) for at, value in self.jumps),
            derivative=None if derivative is None else lambda x: -derivative(x),
            stationary=None
            if self.stationary is None
            else lambda a, l, u: self.stationary(-a, l, u),  # type: ignore[misc]
        )


def derivative_of(f: Function, curve: Curve) -> Function:
    if curve.derivative is not None:
        return curve.derivative
    return lambda x: torch.func.grad(lambda t: f(t).sum())(x)


def interval(f: Function, curve: Curve, x: Interval) -> Interval:
    """The range of f over [l, u]: its values at the ends, at the turns and at the jumps inside."""
    values = [f(x.lower), f(x.upper)]
    values += [f(_inside(turn, x)) for turn in curve.turns]
    values += [_jump(f, at, value, x)[1] for at, value in curve.jumps]
    low, up = values[0], values[0]
    for value in values[1:]:
        low, up = torch.minimum(low, value), torch.maximum(up, value)
    return Interval(low, up)


def lines(f: Function, curve: Curve, x: Interval) -> tuple[Line, Line]:
    """A lower and an upper line of f on [l, u], elementwise; the tangent and the exact value where
    l == u."""
    if curve.kinds == ("convex", "concave") and curve.stationary is None and not curve.jumps:
        return _s_shaped_pair(f, curve, x)
    lower = lower_line(f, curve, x)
    slope, intercept = lower_line(lambda t: -f(t), curve.negated(), x)
    return lower, (-slope, -intercept)


def _s_shaped_pair(f: Function, curve: Curve, x: Interval) -> tuple[Line, Line]:
    """Both lines of an S-shaped function at once: -f(-t) is one too, and s t + b below it on [-u,
    -l] is s t - b above f."""
    df, sign = (
        derivative_of(f, curve),
        torch.tensor([1.0, -1.0], dtype=x.dtype, device=x.device).reshape(2, *[1] * len(x.shape)),
    )
    both = Interval(torch.stack([x.lower, -x.upper]), torch.stack([x.upper, -x.lower]))
    slope, intercept = _finite(
        lambda t: sign * f(sign * t),
        lambda t: df(sign * t),
        both,
        sign * curve.breaks[0],
        curve.touching,
    )
    return (slope[0], intercept[0]), (slope[1], -intercept[1])


def _finite(
    f: Function, df: Function, x: Interval, at: Tensor | float, touching: Function | None
) -> Line:
    slope, intercept = lowered(_s_shaped(f, df, x, at, touching), x)
    good = torch.isfinite(slope) & torch.isfinite(intercept)
    if not spares(good):  # as in lower_line
        slope, intercept = (
            torch.where(good, slope, 0),
            torch.where(good, intercept, torch.minimum(f(x.lower), f(x.upper))),
        )
    return slope, intercept


def lowered(line: Line, x: Interval) -> Line:
    """A lower line, so much lower as its value may be lost to rounding: at large arguments, or with
    a steep slope, slope times x and the intercept almost cancel, and each of them is rounded when
    it is made and when it is used."""
    slope, intercept = line
    kind = torch.finfo(x.dtype)
    # what rounding may lose of a slope, or of an argument, that is smaller than normal numbers
    least = kind.smallest_normal * kind.eps
    steep, most = (
        slope.detach().abs(),
        torch.maximum(x.lower.detach().abs(), x.upper.detach().abs()),
    )
    # x times a factor that torch gives up below normal numbers, e.g. silu(x) = x sigmoid(x) from
    # -88.8 on in single precision: such factors are exponentials, which have gone long before |x|
    # is 1000 in any precision.
    given_up = kind.smallest_normal * most.clamp(max=1000)
    return slope, intercept - ROOM * (steep * (kind.eps * most + least) + least * most + given_up)


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
            return _s_shaped(f, df, x, curve.breaks[0], curve.touching)
        if curve.kinds == ("concave", "convex"):
            mirrored = Interval(-x.upper, -x.lower)
            slope, intercept = _s_shaped(
                lambda t: f(-t), lambda t: -df(-t), mirrored, -curve.breaks[0], curve.touching
            )
            return -slope, intercept
    return _checked(f, df, curve, x, _supporting_slope(f, df, curve, x))


def tangent(f: Function, df: Function, at: Tensor, x: Interval) -> Line:
    """The tangent of a convex function; below both ends too, should its slope have been rounded, or
    have underflowed."""
    slope = df(at)
    return slope, _below_ends(f, x, slope, f(at) - slope * at)


def _below_ends(f: Function, x: Interval, slope: Tensor, intercept: Tensor) -> Tensor:
    return torch.minimum(
        intercept, torch.minimum(f(x.lower) - slope * x.lower, f(x.upper) - slope * x.upper)
    )


def chord(f: Function, df: Function, x: Interval) -> Line:
    """The line through both ends: a lower line of a concave function. Below a width where the
    secant is mostly rounding error, the tangent's slope, lowered to both ends."""
    slope = secant(f, df, x.lower, x.upper)
    return slope, torch.minimum(f(x.lower) - slope * x.lower, f(x.upper) - slope * x.upper)


def secant(f: Function, df: Function, p: Tensor, q: Tensor) -> Tensor:
    """(f(q) - f(p)) / (q - p), or f' in the middle where p and q almost agree."""
    wide = (q - p) > torch.finfo(p.dtype).eps ** 0.5 * (1 + torch.maximum(p.abs(), q.abs()))
    gap = torch.where(wide, q - p, 1)
    middle = torch.where(wide, p, (p + q) / 2)  # keep the unused branch away from singular points
    return torch.where(wide, (f(q) - f(p)) / gap, df(middle))


def _s_shaped(
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
    last = _last_touching(f, df, x, at, touching)
    with torch.no_grad():
        bends = _may_bend(df, x, at, straight[0])
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
    intercept = _below_ends(f, x, slope, f(point) - slope * point)  # whatever is rounded
    return torch.where(bends, slope, straight[0]), torch.where(bends, intercept, straight[1])


def _may_bend(df: Function, x: Interval, at: Tensor | float, chord_slope: Tensor) -> Tensor:
    """Whether the tangent at l is a lower line; where it is not, the chord is. Not to be told from
    a point that lies below d*."""
    return (x.upper <= at) | ((x.lower < at) & (df(x.lower) <= chord_slope))


@torch.no_grad()
def _last_touching(
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
    low, high = (
        torch.where(starts, l, x.centre.detach()),
        torch.where(starts, torch.minimum(u, at), x.centre.detach()),
    )
    for _ in range(54 if l.dtype == torch.float64 else 26):
        middle = (low + high) / 2
        ok = below(middle)
        low, high = torch.where(ok, middle, low), torch.where(ok, high, middle)
    return torch.where(u <= at, torch.inf, torch.where(starts, low, -torch.inf))


def lower_family(f: Function, curve: Curve, x: Interval) -> tuple[Tensor, Callable[[Tensor], Line]]:
    """Lower lines of f for numbers in [0, 1], and the number of the one that :func:`lower_line`
    takes.

    Where f is convex or S-shaped, the number is the touching point between its first and its last
    possible place; elsewhere it goes from the constant line through the least value to the usual
    line.
    """
    df = derivative_of(f, curve)
    l, u = x.lower, x.upper
    if curve.stationary is None and curve.kinds in (
        ("convex",),
        ("convex", "concave"),
        ("concave", "convex"),
    ):
        if curve.kinds == ("concave", "convex"):
            mirrored = Interval(-u, -l)
            start, member = lower_family(
                lambda t: f(-t),
                replace(
                    curve,
                    kinds=("convex", "concave"),
                    breaks=(-curve.breaks[0],),
                    derivative=lambda t: -df(-t),
                ),
                mirrored,
            )
            return start, lambda alpha: (lambda line: (-line[0], line[1]))(member(alpha))
        if curve.kinds == ("convex",):
            bends, last = torch.ones_like(l, dtype=torch.bool), u.detach()
        else:
            found = _last_touching(f, df, x, curve.breaks[0], curve.touching)
            bends, last = (
                _may_bend(df, x, curve.breaks[0], chord(f, df, x)[0].detach()),
                torch.minimum(torch.maximum(found, l), u).detach(),
            )
        first, straight = l.detach(), chord(f, df, x)
        least = interval(f, curve, x).lower
        reach, values = last - first, (f(l), f(u))
        start = (
            (torch.minimum(x.centre.detach(), last) - first) / torch.where(reach > 0, reach, 1)
        ).clamp(0, 1)

        def at_point(alpha: Tensor) -> Line:
            at = first + alpha * reach
            fixed = at.detach()  # f itself need not have a gradient: its derivative is at hand
            slope = df(at)
            intercept = f(fixed) + df(fixed).detach() * (at - fixed) - slope * at
            intercept = torch.minimum(
                intercept, torch.minimum(values[0] - slope * l, values[1] - slope * u)
            )
            slope, intercept = (
                torch.where(bends, slope, straight[0]),
                torch.where(bends, intercept, straight[1]),
            )
            slope, intercept = lowered((slope, intercept), x)
            good = torch.isfinite(slope) & torch.isfinite(intercept)
            return torch.where(good, slope, 0), torch.where(good, intercept, least)

        return start, at_point
    slope, intercept = lower_line(f, curve, x)
    least = interval(f, curve, x).lower

    def toward_constant(alpha: Tensor) -> Line:
        return lowered((alpha * slope, alpha * intercept + (1 - alpha) * least), x)

    return torch.ones_like(l), toward_constant


def _inside(point: float, x: Interval) -> Tensor:
    return torch.minimum(torch.maximum(torch.full_like(x.lower, point), x.lower), x.upper)


def _jump(f: Function, at: float, value: float, x: Interval) -> tuple[Tensor, Tensor]:
    """The one-sided value at a jump inside [l, u]; f(l) where the jump is outside."""
    here = (x.lower <= at) & (at <= x.upper)
    return torch.where(here, at, x.lower), torch.where(here, value, f(x.lower))


def _checked(f: Function, df: Function, curve: Curve, x: Interval, slope: Tensor) -> Line:
    """The highest lower line of this slope."""
    points = [x.lower, x.upper, *(_inside(at, x) for at in curve.breaks)]
    levels = [f(p) - slope * p for p in points]
    levels += [
        value - slope * p for p, value in (_jump(f, at, value, x) for at, value in curve.jumps)
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


def _supporting_slope(f: Function, df: Function, curve: Curve, x: Interval) -> Tensor:
    """The slope of the convex envelope at the midpoint, from the pair of points p <= m <= q whose
    chord is lowest at m.

    The pair is looked for on a grid (with breaks and jumps), then ever closer around the best one.
    Any slope is sound.
    """
    smooth = set(curve.kinds) != {"linear"} or curve.stationary is not None
    with torch.no_grad():
        l, u = x.lower, x.upper
        m = x.centre
        jumps = [_jump(f, at, value, x) for at, value in curve.jumps]
        fixed = [l, u, *(_inside(at, x) for at in curve.breaks)]
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
