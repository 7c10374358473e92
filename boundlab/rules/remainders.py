"""Remainders of a division: remainder, whose sign is that of the divisor, and fmod, whose sign is
that of what is divided.

Both are x - k y with a whole number k = x / y, rounded down or towards 0. Where k is the same at
all corners of a box it is the same inside (x / y is monotone in x and in y), and the remainder is
linear. Elsewhere only its range is known: all of it lies between 0 and y for remainder, and between
0 and x and between -|y| and |y| for fmod.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from boundlab.errors import UnsupportedOperator
from boundlab.relaxations.interval import Interval, Value, lower_of, upper_of
from boundlab.relaxations.lines import lines_of_perturbed
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import Call, Relaxed, aten, composition, register


class Corners(NamedTuple):
    """The ends of both arguments, as tensors of one type."""

    lx: Tensor
    ux: Tensor
    ly: Tensor
    uy: Tensor


class Turns(NamedTuple):
    """The interval of a remainder; where it is linear; k there, and how far rounding may move
    it."""

    interval: Interval
    linear: Tensor
    k: Tensor
    room: Tensor


@dataclass(frozen=True)
class Remainder:
    """function: the remainder itself. mode: how the quotient is rounded. span: its range where it
    is not linear."""

    function: Callable[[Tensor, Tensor], Tensor]
    mode: str
    span: Callable[[Corners], tuple[Tensor, Tensor]]

    def turns(self, call: Call) -> Turns:
        ends = _ends(call)
        lx, ux, ly, uy = ends
        corners = list(itertools.product((lx, ux), (ly, uy)))
        values = torch.stack([self.function(a, b) for a, b in corners])
        turns = torch.stack([torch.div(a, b, rounding_mode=self.mode) for a, b in corners])
        k = turns[0]
        size = torch.maximum(lx.abs(), ux.abs()) + torch.maximum(ly.abs(), uy.abs())
        room = (8 * torch.finfo(k.dtype).eps * size).expand(k.shape)
        # In one period the remainders of the corners differ as the arguments do; one period further
        # on they would fall.
        linear = torch.stack([a - k * b for a, b in corners])
        one = (turns == k).all(0) & ((values - linear).abs() <= room).all(0) & torch.isfinite(k)
        # else periods cannot be told apart
        one = one & (room < 0.5 * torch.minimum(ly.abs(), uy.abs()))
        low, up = self.span(ends)
        point = (lx == ux) & (ly == uy)
        inside = one | point
        low, up = torch.where(inside, values.amin(0), low), torch.where(inside, values.amax(0), up)
        return Turns(Interval(low, up), one & ~point, k, room)

    def interval(self, call: Call) -> Interval:
        return self.turns(call).interval

    def lines(self, call: Call) -> Relaxation:
        x, y = call["self"], call["other"]
        known, one, k, room = self.turns(call)
        low, up = torch.where(one, -room, known.lower), torch.where(one, room, known.upper)
        slopes = [torch.where(one, slope, 0) for slope in (torch.ones_like(k), -k)]
        return lines_of_perturbed((x, y), slopes, low, slopes, up)


def _ends(call: Call) -> Corners:
    """The ends of what is divided and of the divisor, which must not be 0, fixed or not: the
    remainder is no number then."""
    like = call.inputs[0].lower
    if not like.dtype.is_floating_point:
        raise UnsupportedOperator(
            f"{call.node}: remainders of perturbed whole numbers have no rule"
        )

    def both(value: Value | float) -> list[Tensor]:
        if isinstance(value, (int, float)):
            value = torch.as_tensor(value, dtype=like.dtype, device=like.device)
        return [lower_of(value), upper_of(value)]

    ends = Corners(*both(call["self"]), *both(call["other"]))
    call.require((ends.ly > 0) | (ends.uy < 0), "division by an interval that contains zero")
    return ends


def _between_zero_and_divisor(ends: Corners) -> tuple[Tensor, Tensor]:
    """Both of which rounding may reach."""
    zero = torch.zeros_like(ends.ly)
    return torch.minimum(ends.ly, zero), torch.maximum(ends.uy, zero)


def _towards_zero(ends: Corners) -> tuple[Tensor, Tensor]:
    lx, ux, ly, uy = ends
    most = torch.maximum(ly.abs(), uy.abs())
    return torch.maximum(lx.clamp(max=0), -most), torch.minimum(ux.clamp(min=0), most)


def _rule(remainder: Remainder) -> Relaxed:
    return Relaxed(remainder.interval, remainder.lines, kind="elementwise", has_jumps=True)


REMAINDER = Remainder(torch.remainder, "floor", _between_zero_and_divisor)
FMOD = Remainder(torch.fmod, "trunc", _towards_zero)
register(aten.remainder, rule=_rule(REMAINDER))
register(aten.fmod, rule=_rule(FMOD))


@composition(aten.frac.default)
def frac(x: Tensor) -> Tensor:
    """What is behind the point, with the sign of x."""
    return torch.fmod(x, 1.0)
