"""sin, cos and tan."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from boundlab.interval import Interval
from boundlab.relaxation import Lines, Relaxation
from boundlab.rules import curves
from boundlab.rules.curves import Curve
from boundlab.rules.elementwise import S_REVERSED
from boundlab.rules.registry import Call, Relaxed, aten, register

TURN = 2 * math.pi


def _contains(x: Interval, phase: float) -> Tensor:
    """Whether [l, u] holds a point phase + 2 pi k; in doubt (rounding at large arguments), yes."""
    slack = 8 * torch.finfo(x.dtype).eps * (1 + torch.maximum(x.lower.abs(), x.upper.abs()))
    first = torch.ceil((x.lower - slack - phase) / TURN) * TURN + phase
    return first <= x.upper + slack


def _wave_interval(call: Call, top: float) -> Interval:
    (x,) = call.inputs
    f = call.bind()
    ends = f(x.lower), f(x.upper)
    low = torch.where(_contains(x, top + math.pi), -1.0, torch.minimum(*ends))
    up = torch.where(_contains(x, top), 1.0, torch.maximum(*ends))
    return Interval(torch.where(x.lower == x.upper, ends[0], low), torch.where(x.lower == x.upper, ends[1], up))


def _wave_lines(call: Call, angles: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Relaxation:
    """angles: the two angles of one turn where f' equals a given slope."""
    (x,) = call.inputs
    f = call.bind()

    def stationary(slope: Tensor, l: Tensor, u: Tensor) -> list[Tensor]:
        inside = slope.detach().clamp(-1, 1)
        return [angle + TURN * (torch.round(((l + u) / 2 - angle) / TURN) + k) for angle in angles(inside) for k in (-1, 0, 1)]

    curve = Curve(("linear",), stationary=stationary)
    (a, b), (c, d) = curves.lines(f, curve, x)
    wide = x.upper - x.lower >= TURN  # a whole turn: the constants are best, and all stationary points need not be listed
    one = torch.ones_like(a)
    a, b, c, d = torch.where(wide, 0, a), torch.where(wide, -one, b), torch.where(wide, 0, c), torch.where(wide, one, d)
    return Lines((a,), b, (c,), d, (x.shape,))


def _sine_angles(slope: Tensor) -> tuple[Tensor, Tensor]:
    return torch.acos(slope), -torch.acos(slope)


def _cosine_angles(slope: Tensor) -> tuple[Tensor, Tensor]:
    return -torch.asin(slope), math.pi + torch.asin(slope)


register(aten.sin, rule=Relaxed(lambda call: _wave_interval(call, math.pi / 2), lambda call: _wave_lines(call, _sine_angles), kind="elementwise"))
register(aten.cos, rule=Relaxed(lambda call: _wave_interval(call, 0.0), lambda call: _wave_lines(call, _cosine_angles), kind="elementwise"))


def _branch(call: Call) -> tuple[Interval, Tensor]:
    """The interval moved into (-pi/2, pi/2), and by how much."""
    (x,) = call.inputs
    shift = torch.round(x.centre / math.pi).detach() * math.pi
    moved = Interval(x.lower - shift, x.upper - shift)
    call.require((moved.lower > -math.pi / 2) & (moved.upper < math.pi / 2), "the interval of tan must lie between two of its poles")
    return moved, shift


def _tan_interval(call: Call) -> Interval:
    _branch(call)
    (x,) = call.inputs
    return Interval(torch.tan(x.lower), torch.tan(x.upper))


def _tan_lines(call: Call) -> Relaxation:
    x, shift = _branch(call)
    (a, b), (c, d) = curves.lines(torch.tan, S_REVERSED, x)
    return Lines((a,), b - a * shift, (c,), d - c * shift, (x.shape,))


register(aten.tan, rule=Relaxed(_tan_interval, _tan_lines, kind="elementwise"))
