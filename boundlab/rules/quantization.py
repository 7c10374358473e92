"""Fake quantisation: x as the nearest of the numbers s (k - z) with k = a ... b.

f(x) = clamp(s round(x / s), s (a - z), s (b - z)) is monotone, so its values at the ends bound it.
Without the clamp it is within s / 2 of x; with it, below f lies min(x - s / 2, top), which is
concave, so that its chord is a lower line, and above f lies max(x + s / 2, bottom), which is
convex. Of these lines and the constants the one that is better in the middle is taken.

The quotient is x times 1 / s, rounded to single precision: k s is off by that much of x.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boundlab.errors import UnsupportedOperator
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import Call, Relaxed, aten, register

COUNTABLE = 2.0**62
"""Beyond so many steps from 0 the number of the step is no whole number of torch's any more, and
its value per channel not defined."""


def step_size(call: Call) -> Tensor:
    """s, which broadcasts with x."""
    if len(call.inputs) > 1 or not isinstance(call["self"], Interval):
        raise UnsupportedOperator(
            f"{call.node}: its scale or zero point is perturbed; only fixed ones have a rule"
        )
    (x,) = call.inputs
    scale = torch.as_tensor(call["scale"], dtype=x.dtype, device=x.device)
    if not bool((scale > 0).all()):
        raise UnsupportedOperator(f"{call.node}: its scale must be positive")
    axis = call.get("axis")
    if axis is None:
        return scale.reshape([])
    shape = [1] * len(x.shape)
    shape[axis] = -1
    return scale.reshape(shape)


def limits(call: Call) -> tuple[Tensor, Tensor]:
    """The least and the largest of the numbers, in the shape of x."""
    f = call.bind()
    largest = torch.full_like(call.inputs[0].lower, COUNTABLE / 4) * step_size(call)
    return f(-largest), f(largest)


def _interval(call: Call) -> Interval:
    s = step_size(call)
    (x,) = call.inputs
    if call.get("axis") is not None:
        steps = torch.maximum(x.lower.abs(), x.upper.abs()) / s
        call.require(
            steps < COUNTABLE, "the interval of its argument must lie within 2^62 steps of 0"
        )
    f = call.bind()
    return Interval(f(x.lower), f(x.upper))


def _lines(call: Call) -> Relaxation:
    s = step_size(call)
    (x,) = call.inputs
    ends = _interval(call)
    bottom, top = limits(call)
    most = torch.maximum(x.lower.abs(), x.upper.abs())
    room = 8 * torch.finfo(torch.float32).eps * (most + top.abs() + bottom.abs())
    reach = s / 2 + room
    low = _chord(torch.minimum, x, -reach, top - room)
    up = _chord(torch.maximum, x, reach, bottom + room)
    middle = x.centre
    jumps = ends.lower < ends.upper
    below = jumps & (low[0] * middle + low[1] > ends.lower)
    above = jumps & (up[0] * middle + up[1] < ends.upper)
    return Lines(
        (torch.where(below, low[0], 0),), torch.where(below, low[1], ends.lower),
        (torch.where(above, up[0], 0),), torch.where(above, up[1], ends.upper),
        (x.shape,),
    )  # fmt: skip


def _chord(
    extreme: Callable[[Tensor, Tensor], Tensor], x: Interval, shift: Tensor, end: Tensor
) -> tuple[Tensor, Tensor]:
    """Slope and intercept of the chord of extreme(x + shift, end), which bends at one point."""
    at_l, at_u = extreme(x.lower + shift, end), extreme(x.upper + shift, end)
    gap = x.upper - x.lower
    slope = ((at_u - at_l) / torch.where(gap > 0, gap, 1)).clamp(0, 1)
    # extreme is that of both ends, too: whatever was rounded, the line is beyond them
    return slope, extreme(at_l - slope * x.lower, at_u - slope * x.upper)


register(
    aten.fake_quantize_per_tensor_affine,
    aten.fake_quantize_per_channel_affine,
    rule=Relaxed(_interval, _lines, kind="elementwise", has_jumps=True),
)
