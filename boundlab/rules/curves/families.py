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
            found = last_touching(f, df, x, curve.breaks[0], curve.touching)
            bends, last = (
                may_bend(df, x, curve.breaks[0], chord(f, df, x)[0].detach()),
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
