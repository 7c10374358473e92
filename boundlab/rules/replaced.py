"""nan_to_num: x itself where it is a number.

What is known to lie between two numbers is one, and stays as it is. An end at infinity says nothing
of x: it may be infinite, or what infinities make, and then any of the three numbers that take their
place may be the value.
"""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import Call, Relaxed, aten, register


def _is_number(x: Interval) -> Tensor:
    return torch.isfinite(x.lower) & torch.isfinite(x.upper)


def _interval(call: Call) -> Interval:
    (x,) = call.inputs
    f = call.bind()
    largest = torch.finfo(x.dtype).max
    strange = torch.tensor(
        [torch.nan, torch.inf, -torch.inf], dtype=x.dtype, device=x.device
    )  # what is replaced
    instead = f(strange)
    low = torch.minimum(x.lower.clamp(-largest, largest), instead.min())
    up = torch.maximum(x.upper.clamp(-largest, largest), instead.max())
    number = _is_number(x)
    return Interval(torch.where(number, x.lower, low), torch.where(number, x.upper, up))


def _lines(call: Call) -> Relaxation:
    (x,) = call.inputs
    ends, number = _interval(call), _is_number(x)
    slope = number.to(x.dtype)
    low, up = torch.where(number, 0, ends.lower), torch.where(number, 0, ends.upper)
    return Lines((slope,), low, (slope,), up, (x.shape,))


register(aten.nan_to_num, rule=Relaxed(_interval, _lines, kind="elementwise", has_jumps=True))
