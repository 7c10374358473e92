"""Rounding to whole numbers, of values and of quotients.

floor(x) lies in (x - 1, x], ceil(x) in [x, x + 1), round(x) in [x - 1/2, x + 1/2], trunc(x) between x - 1 and x + 1;
each is monotone, so its values at the ends bound it too. Of these lines the one that is better in the middle is taken.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundlab.interval import Interval, lower_of, upper_of
from boundlab.relaxation import Lines, Relaxation, constant_lines
from boundlab.rules.registry import Call, Relaxed, aten, register


def _lines(x: Interval, ends: Interval, scale: Tensor | float, below: float, above: float) -> Lines:
    """The lines of a step function between ``scale x + below`` and ``scale x + above`` and between its ends."""
    middle, jumps = x.centre * scale, ends.lower < ends.upper
    low, up = (middle + below > ends.lower) & jumps, (middle + above < ends.upper) & jumps
    zero = torch.zeros_like(ends.lower)
    slope = zero + scale
    return Lines(
        (torch.where(low, slope, zero),), torch.where(low, below, ends.lower), (torch.where(up, slope, zero),), torch.where(up, above, ends.upper),
        (x.shape,),
    )  # fmt: skip


def _step(below: float, above: float) -> Relaxed:
    def interval(call: Call) -> Interval:
        (x,) = call.inputs
        f = call.bind()
        return Interval(f(x.lower), f(x.upper))

    return Relaxed(interval, lambda call: _lines(call.inputs[0], interval(call), 1.0, below, above), kind="elementwise", has_jumps=True)


register(aten.floor, rule=_step(-1.0, 0.0))
register(aten.ceil, rule=_step(0.0, 1.0))
register(aten.round.default, rule=_step(-0.5, 0.5))
register(aten.trunc, aten.fix, rule=_step(-1.0, 1.0))

# -- rounded quotients ---------------------------------------------------------------------------------------------------


def _quotient_interval(call: Call) -> Interval:
    """For y of one sign the quotient is monotone in either argument, and rounding keeps that: the corners bound it."""
    (x, y), kwargs = call.arguments
    if isinstance(y, Interval):
        call.require((y.lower > 0) | (y.upper < 0), "division by an interval that contains zero")
    corners = [call.node.call((a, b), kwargs) for a in (lower_of(x), upper_of(x)) for b in (lower_of(y), upper_of(y))]
    return Interval(torch.stack(corners).amin(0), torch.stack(corners).amax(0))


def _quotient_lines(call: Call) -> Relaxation:
    (x, y), kwargs = call.arguments
    ends = _quotient_interval(call)
    if isinstance(y, Interval):
        return constant_lines(ends, call.inputs)
    below, above = BETWEEN[kwargs["rounding_mode"]]
    return _lines(x, ends, 1 / y, below, above)


BETWEEN: dict[Any, tuple[float, float]] = {"floor": (-1.0, 0.0), "trunc": (-1.0, 1.0), None: (0.0, 0.0)}
register(aten.div.Tensor_mode, rule=Relaxed(_quotient_interval, _quotient_lines, has_jumps=True))


# -- remainders ------------------------------------------------------------------------------------------------------------


def _remainder_interval(call: Call) -> Interval:
    """Of one period, the remainders of the ends; else all from 0 to y. Both ends lie in one period iff they are less than |y|
    apart and their remainders, which floating-point numbers give exactly but for one rounding at y, are in order."""
    (x, y), kwargs = call.arguments
    if isinstance(y, Interval):
        call.require((y.lower > 0) | (y.upper < 0), "division by an interval that contains zero")
        return Interval(y.lower.clamp(max=0).expand(_broadcast(x, y)), y.upper.clamp(min=0).expand(_broadcast(x, y)))
    y = torch.as_tensor(y, dtype=x.dtype, device=x.device)
    ends = call.node.call((x.lower, y), kwargs), call.node.call((x.upper, y), kwargs)
    one = _one_period(x, y, ends)
    return Interval(torch.where(one, ends[0], y.clamp(max=0)), torch.where(one, ends[1], y.clamp(min=0)))


def _broadcast(x: Any, y: Interval) -> torch.Size:
    return torch.broadcast_shapes(lower_of(x).shape, y.shape) if isinstance(x, (Tensor, Interval)) else y.shape


def _one_period(x: Interval, y: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
    apart = (x.upper - x.lower) * (1 + 4 * torch.finfo(x.dtype).eps)
    return (apart < y.abs()) & (ends[0] <= ends[1])


def _remainder_lines(call: Call) -> Relaxation:
    """x itself, moved by the multiple of y that is subtracted: from the lower end rem(l) + (x - l), where that is one period."""
    (x, y), _ = call.arguments
    known = _remainder_interval(call)
    if isinstance(y, Interval):
        return constant_lines(known, call.inputs)
    wide = x.upper.expand(known.shape) - x.lower.expand(known.shape)
    apart = (known.upper - known.lower - wide).abs()
    size = torch.maximum(x.lower.abs(), x.upper.abs()) + known.upper.abs()
    room = 8 * torch.finfo(x.dtype).eps * size
    moves = (apart <= room) & (room < wide)
    slope = moves.to(x.dtype)
    low = torch.where(moves, known.lower - x.lower - room, known.lower)
    up = torch.where(moves, known.lower - x.lower + room, known.upper)
    return Lines((slope,), low, (slope,), up, (x.shape,))


register(aten.remainder, rule=Relaxed(_remainder_interval, _remainder_lines, kind="elementwise", has_jumps=True))
