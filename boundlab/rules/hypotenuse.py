"""hypot(x, y) = sqrt(x^2 + y^2), without squares that overflow.

It is convex and grows like its argument, so its tangent at the centre m passes through the origin:
by Cauchy and Schwarz hypot(x, y) >= (m_x x + m_y y) / |m|. From above, the difference to a plane is
convex too, and so largest at a corner: with the mean slopes of the sides, the plane through the
highest corner. Its range follows from those of |x| and |y|.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval, Value, lower_of, upper_of
from boundlab.relaxations.lines import lines_of_perturbed
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.curves import ROOM
from boundlab.rules.registry import Call, Relaxed, aten, register


def _sizes(x: Value) -> tuple[Tensor, Tensor]:
    """The least and the largest |x|."""
    low, up = lower_of(x), upper_of(x)
    return torch.maximum(low, -up).clamp(min=0), torch.maximum(low.abs(), up.abs())


def _interval(call: Call) -> Interval:
    x, y = call["self"], call["other"]
    (a, b), (c, d) = _sizes(x), _sizes(y)
    return Interval(torch.hypot(a, c), torch.hypot(b, d))


def _planes(call: Call) -> Relaxation:
    x, y = call["self"], call["other"]
    known = _interval(call)
    ends = [tuple(end.expand(known.shape) for end in (lower_of(v), upper_of(v))) for v in (x, y)]
    middles = [low / 2 + up / 2 for low, up in ends]
    length = torch.hypot(*middles)
    unit = lambda m: torch.where(length > 0, m / torch.where(length > 0, length, 1), 0)
    low_slopes = [unit(m) for m in middles]
    up_slopes = [_mean_slope(ends, side) for side in (0, 1)]
    corners = list(itertools.product(*ends))
    heights = [torch.hypot(p, q) - up_slopes[0] * p - up_slopes[1] * q for p, q in corners]
    level = torch.stack(heights).amax(0)
    size = torch.stack([p.abs() + q.abs() for p, q in corners]).amax(0)
    room = ROOM * torch.finfo(known.dtype).eps * size
    low, up = -room, level + room
    good = torch.isfinite(low) & torch.isfinite(up) & (known.lower < known.upper)
    low, up = torch.where(good, low, known.lower), torch.where(good, up, known.upper)
    low_slopes = [torch.where(good, slope, 0) for slope in low_slopes]
    up_slopes = [torch.where(good, slope, 0) for slope in up_slopes]
    return lines_of_perturbed((x, y), low_slopes, low, up_slopes, up)


def _mean_slope(ends: list[tuple[Tensor, ...]], side: int) -> Tensor:
    """The mean of the secants along one argument, at both ends of the other."""
    (l, u), others = ends[side], ends[1 - side]
    gap = u - l
    rises = sum(torch.hypot(u, other) - torch.hypot(l, other) for other in others)
    return torch.where(gap > 0, rises / (2 * torch.where(gap > 0, gap, 1)), 0).clamp(-1, 1)


register(aten.hypot, rule=Relaxed(_interval, _planes))
