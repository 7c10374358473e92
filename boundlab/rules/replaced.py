"""nan_to_num: x itself where it is a number.

Bounds speak of numbers: that x lies between two of them does not say that it is one. What clamp,
softmax or tanh give is bounded, and is NaN all the same if an infinity before them made one. So the
number that takes the place of NaN always counts, and only constants are known.

Sums and products with fixed factors hide no infinity: their ends are infinite, or NaN, as well.
Where nothing else lies between x and the inputs (capture says so), finite ends do say that x is a
number, which stays as it is. An end at infinity says nothing of x, and then any of the three
numbers that take a place may be the value.
"""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines, constant_lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import Call, Relaxed, aten, register

READS_NAN = frozenset((aten.nan_to_num.default,))
"""Operators that count on NaN in what they read, whatever its bounds say."""


def nan_to_num_of_inputs(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """nan_to_num of what hides no infinity."""
    return torch.nan_to_num(x, nan, posinf, neginf)


def _is_number(x: Interval) -> Tensor:
    return torch.isfinite(x.lower) & torch.isfinite(x.upper)


def _instead(call: Call) -> Tensor:
    """What takes the place of NaN, of infinity and of minus infinity."""
    (x,) = call.inputs
    strange = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=x.dtype, device=x.device)
    found: Tensor = call.bind()(strange)
    return found


def _number_or_not(call: Call) -> Interval:
    (x,) = call.inputs
    instead = _instead(call)
    largest = torch.finfo(x.dtype).max
    low = torch.minimum(x.lower.clamp(-largest, largest), instead.min())
    up = torch.maximum(x.upper.clamp(-largest, largest), instead.max())
    number = _is_number(x)
    return Interval(torch.where(number, x.lower, low), torch.where(number, x.upper, up))


def _interval(call: Call) -> Interval:
    found, of_nan = _number_or_not(call), _instead(call)[0]
    return Interval(torch.minimum(found.lower, of_nan), torch.maximum(found.upper, of_nan))


def _lines(call: Call) -> Relaxation:
    (x,) = call.inputs
    ends, number = _number_or_not(call), _is_number(x)
    slope = number.to(x.dtype)
    low, up = torch.where(number, 0, ends.lower), torch.where(number, 0, ends.upper)
    return Lines((slope,), low, (slope,), up, (x.shape,))


register(
    aten.nan_to_num,
    rule=Relaxed(
        _interval,
        lambda call: constant_lines(_interval(call), call.inputs),
        kind="elementwise",
        has_jumps=True,
    ),
)
register(
    nan_to_num_of_inputs,
    rule=Relaxed(_number_or_not, _lines, kind="elementwise", has_jumps=True),
)
