"""Tangents and chords, and the room that they leave for rounding."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.rules.curves.curve import Function, Line

ROOM = 4.0
"""How many times slope and argument are rounded, in making a line and in using it."""


def tangent(f: Function, df: Function, at: Tensor, x: Interval) -> Line:
    """The tangent of a convex function; below both ends too, should its slope have been rounded, or
    have underflowed."""
    slope = df(at)
    return slope, below_ends(f, x, slope, f(at) - slope * at)


def below_ends(f: Function, x: Interval, slope: Tensor, intercept: Tensor) -> Tensor:
    """The intercept of a line, lowered until it is below f at both ends."""
    return torch.minimum(intercept, _at_ends(f, x, slope))


def _at_ends(f: Function, x: Interval, slope: Tensor) -> Tensor:
    """The highest intercept of a line of this slope that is below f at both ends."""
    return torch.minimum(f(x.lower) - slope * x.lower, f(x.upper) - slope * x.upper)


def chord(f: Function, df: Function, x: Interval) -> Line:
    """The line through both ends: a lower line of a concave function. Below a width where the
    secant is mostly rounding error, the tangent's slope, lowered to both ends."""
    slope = secant(f, df, x.lower, x.upper)
    return slope, _at_ends(f, x, slope)


def secant(f: Function, df: Function, p: Tensor, q: Tensor) -> Tensor:
    """(f(q) - f(p)) / (q - p), or f' in the middle where p and q almost agree."""
    wide = (q - p) > torch.finfo(p.dtype).eps ** 0.5 * (1 + torch.maximum(p.abs(), q.abs()))
    gap = torch.where(wide, q - p, 1)
    middle = torch.where(wide, p, (p + q) / 2)  # keep the unused branch away from singular points
    return torch.where(wide, (f(q) - f(p)) / gap, df(middle))


def lowered(line: Line, x: Interval) -> Line:
    """A lower line, so much lower as its value may be lost to rounding: at large arguments, or with
    a steep slope, slope times x and the intercept almost cancel, and each of them is rounded when
    it is made and when it is used."""
    slope, intercept = line
    kind = torch.finfo(x.dtype)
    # what rounding may lose of a slope, or of an argument, that is smaller than normal numbers
    least = kind.smallest_normal * kind.eps
    steep = slope.detach().abs()
    most = torch.maximum(x.lower.detach().abs(), x.upper.detach().abs())
    # x times a factor that torch gives up below normal numbers, e.g. silu(x) = x sigmoid(x) from
    # -88.8 on in single precision: such factors are exponentials, which have gone long before |x|
    # is 1000 in any precision.
    given_up = kind.smallest_normal * most.clamp(max=1000)
    return slope, intercept - ROOM * (steep * (kind.eps * most + least) + least * most + given_up)
