"""sin, cos and tan."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules import curves
from boundlab.rules.curves import Curve
from boundlab.rules.elementwise import S_REVERSED
from boundlab.rules.registry import Call, Relaxed, aten, register

TURN = 2 * math.pi


BLURRED = 0.05
"""How far multiples of pi may be off, for rounding, where lines are still made."""


def _slack(x: Interval) -> Tensor:
    """How far multiples of pi are off at arguments of this size."""
    most = torch.maximum(x.lower.detach().abs(), x.upper.detach().abs())
    return 8 * torch.finfo(x.dtype).eps * (1 + most)


def _contains(x: Interval, phase: float) -> Tensor:
    """Whether [l, u] holds a point phase + 2 pi k; in doubt (rounding at large arguments), yes."""
    slack = _slack(x)
    first = torch.ceil((x.lower - slack - phase) / TURN) * TURN + phase
    return first <= x.upper + slack


def _wave_interval(call: Call, top: float) -> Interval:
    (x,) = call.inputs
    f = call.bind()
    ends = f(x.lower), f(x.upper)
    low = torch.where(_contains(x, top + math.pi), -1.0, torch.minimum(*ends))
    up = torch.where(_contains(x, top), 1.0, torch.maximum(*ends))
    point = x.lower == x.upper
    return Interval(torch.where(point, ends[0], low), torch.where(point, ends[1], up))


def _wave_lines(
    call: Call, top: float, angles: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Relaxation:
    """angles: the two angles of one turn where f' equals a given slope."""
    (x,) = call.inputs
    f = call.bind()

    def stationary(slope: Tensor, l: Tensor, u: Tensor) -> list[Tensor]:
        inside = slope.detach().clamp(-1, 1)
        return [
            angle + TURN * (torch.round(((l + u) / 2 - angle) / TURN) + k)
            for angle in angles(inside)
            for k in (-1, 0, 1)
        ]

    curve = Curve(("linear",), stationary=stationary)
    (a, b), (c, d) = curves.lines(f, curve, x)
    # The difference to a line is flat at a stationary point: one that is off by s misses less than
    # s^2 of it.
    slack = _slack(x)
    b, d = b - slack * slack, d + slack * slack
    # From a whole turn on the constants are best, and all stationary points need not be listed.
    wide = (x.upper - x.lower >= TURN) | (slack > BLURRED) | ~torch.isfinite(b + d)
    ends = _wave_interval(call, top)
    a, b = torch.where(wide, 0, a), torch.where(wide, ends.lower, b)
    c, d = torch.where(wide, 0, c), torch.where(wide, ends.upper, d)
    return Lines((a,), b, (c,), d, (x.shape,))


def _sine_angles(slope: Tensor) -> tuple[Tensor, Tensor]:
    return torch.acos(slope), -torch.acos(slope)


def _cosine_angles(slope: Tensor) -> tuple[Tensor, Tensor]:
    return -torch.asin(slope), math.pi + torch.asin(slope)


def _wave(top: float, angles: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Relaxed:
    """top: where it is 1. angles: as for the lines."""
    return Relaxed(
        lambda call: _wave_interval(call, top),
        lambda call: _wave_lines(call, top, angles),
        kind="elementwise",
    )


register(aten.sin, rule=_wave(math.pi / 2, _sine_angles))
register(aten.cos, rule=_wave(0.0, _cosine_angles))


def _branch(call: Call) -> tuple[Interval, Tensor]:
    """The interval moved into (-pi/2, pi/2), and by how much; refused if a pole may lie in it, for
    all that is known at such arguments."""
    (x,) = call.inputs
    shift = torch.round(x.centre / math.pi).detach() * math.pi
    moved, slack = Interval(x.lower - shift, x.upper - shift), _slack(x)
    inside = (moved.lower > slack - math.pi / 2) & (moved.upper < math.pi / 2 - slack)
    call.require(inside, "the interval of tan must lie between two of its poles")
    return moved, shift


def _tan_interval(call: Call) -> Interval:
    _branch(call)
    (x,) = call.inputs
    return Interval(torch.tan(x.lower), torch.tan(x.upper))


def _tan_lines(call: Call) -> Relaxation:
    """In moved coordinates, where the curve bends the other way at 0; constants where it is not
    clear enough where that is."""
    x, shift = _branch(call)
    (a, b), (c, d) = curves.lines(lambda t: torch.tan(t + shift), TANGENT, x)
    whole, ends = call.inputs[0], _tan_interval(call)
    slack = _slack(whole)
    most = torch.maximum(whole.lower.abs(), whole.upper.abs())
    room = slack * slack + curves.ROOM * torch.finfo(x.dtype).eps * most * torch.maximum(a, c)
    b, d = b - a * shift - room, d - c * shift + room
    flat = (slack > BLURRED) | (ends.lower == ends.upper) | ~torch.isfinite(a + b + c + d)
    a, b = torch.where(flat, 0, a), torch.where(flat, ends.lower, b)
    c, d = torch.where(flat, 0, c), torch.where(flat, ends.upper, d)
    return Lines((a,), b, (c,), d, (x.shape,))


TANGENT = replace(S_REVERSED, derivative=lambda t: 1 + torch.tan(t) ** 2)
register(aten.tan, rule=Relaxed(_tan_interval, _tan_lines, kind="elementwise"))
