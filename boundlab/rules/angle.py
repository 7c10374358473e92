"""atan2(y, x): the angle of the point (x, y), between -pi and pi.

It jumps where x is negative and y is 0, and has no limit at the origin: over boxes that may hold
such a point only its range is known (zero has two signs, so that the border counts). Over other
boxes it is smooth. Where it is constant are rays from the origin, so over a convex set that these
leave alone it is largest and least at corners. Its second derivatives are

    2xy / r^4, (y^2 - x^2) / r^4, -2xy / r^4    with r^2 = x^2 + y^2,

a matrix with the eigenvalues +-1 / r^2: within d of the middle of a box it is within d^2 / (2 r^2)
of its tangent plane there, with r the least distance of the box from the origin. The tangent plane
at (a, b) has the slopes -b / r^2 and a / r^2, and vanishes at its own point but for the angle.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval, Value, lower_of, upper_of
from boundlab.relaxations.lines import lines_of_perturbed
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.curves import ROOM
from boundlab.rules.registry import Call, Relaxed, aten, register

Ends = tuple[Tensor, Tensor]


def _both(call: Call) -> tuple[Value, Value]:
    """y and x."""
    return call["self"], call["other"]


def _ends(call: Call) -> tuple[Ends, Ends]:
    """The ends of y and of x, in the shape of the result."""
    y, x = _both(call)
    ly, uy, lx, ux = torch.broadcast_tensors(lower_of(y), upper_of(y), lower_of(x), upper_of(x))
    return (ly, uy), (lx, ux)


def _interval(call: Call) -> Interval:
    (ly, uy), (lx, ux) = _ends(call)
    corners = torch.stack([torch.atan2(b, a) for b, a in itertools.product((ly, uy), (lx, ux))])
    jumps = (ly <= 0) & (uy >= 0) & (lx <= 0)
    low, up = torch.where(jumps, -math.pi, corners.amin(0)), corners.amax(0)
    return Interval(low, torch.where(jumps, math.pi, up))


def _planes(call: Call) -> Relaxation:
    (ly, uy), (lx, ux) = _ends(call)
    known = _interval(call)
    b, a = ly / 2 + uy / 2, lx / 2 + ux / 2
    far = torch.hypot(a, b)
    slopes = [a / far / far, -b / far / far]  # of y and of x
    # the least distance from the origin, and how far the corners are from the middle, in its unit
    near = torch.hypot(_least(lx, ux), _least(ly, uy))
    wide = torch.maximum(ux - a, a - lx) / near, torch.maximum(uy - b, b - ly) / near
    bent = (wide[0] * wide[0] + wide[1] * wide[1]) / 2
    eps = torch.finfo(known.dtype).eps
    size = slopes[0].abs() * torch.maximum(ly.abs(), uy.abs())
    size = size + slopes[1].abs() * torch.maximum(lx.abs(), ux.abs())
    room = bent + ROOM * eps * (math.pi + size)
    middle = torch.atan2(b, a)
    low, up = middle - room, middle + room
    good = torch.isfinite(low) & torch.isfinite(slopes[0]) & torch.isfinite(slopes[1])
    good = good & (known.lower < known.upper) & (known.upper - known.lower < math.pi)
    below, above = good & (low > known.lower), good & (up < known.upper)
    return lines_of_perturbed(
        _both(call),
        [torch.where(below, slope, 0) for slope in slopes],
        torch.where(below, low, known.lower),
        [torch.where(above, slope, 0) for slope in slopes],
        torch.where(above, up, known.upper),
    )


def _least(l: Tensor, u: Tensor) -> Tensor:
    """The least |x|."""
    return torch.maximum(l, -u).clamp(min=0)


register(aten.atan2, rule=Relaxed(_interval, _planes, has_jumps=True))
