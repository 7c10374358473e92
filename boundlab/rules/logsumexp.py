"""log-sum-exp, with planes of its own.

It is convex: its tangent plane at the centre lies below. Above: sum exp(x_j) <= sum of the chords
of exp =: c(x), and log h <= log t + (h - t)/t for any t; t is the value of c at the centre. All
relative to the largest upper bound s, so that nothing overflows.
"""

from __future__ import annotations

import string

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.relaxations.planes import Planes
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import Call, Relaxed, aten, register
from boundlab.rules.settings import dimensions

Plane = tuple[Tensor, Tensor]
"""Slopes (..., i, j) of result i in argument j, and intercepts (..., i)."""


def exp_chord(a: Tensor, b: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and value at 0 of the chord of exp(z + scale) over [a, b]; for a narrow interval the
    slope at a, with the line lifted to both ends."""
    gap, least = b - a, torch.finfo(a.dtype).eps ** 0.5
    bottom, top = torch.exp(a + scale), torch.exp(b + scale)
    rise = torch.lerp((top - bottom) / gap.clamp(min=least), bottom, (gap < least).to(a.dtype))
    return rise, torch.maximum(bottom - rise * a, top - rise * b)


def lse_both(x: Interval, dims: tuple[int, ...]) -> tuple[Plane, Plane, Tensor]:
    """The lower and the upper plane of log-sum-exp over ``dims`` (kept with size 1), and the centre
    of the box."""
    shift = x.upper.amax(dims, keepdim=True).detach()
    shift = torch.where(torch.isfinite(shift), shift, 0)
    finite = torch.isfinite(x.lower - shift) & torch.isfinite(x.upper)
    a, b = torch.where(finite, x.lower - shift, 0), torch.where(finite, x.upper - shift, 0)
    m, zero = 0.5 * a + 0.5 * b, torch.zeros_like(a)

    # Relative to the largest centre: exp(m) itself may be below normal numbers, whose logarithm is
    # far off.
    top = torch.where(finite, m, -torch.inf).amax(dims, keepdim=True).detach()
    top = torch.where(torch.isfinite(top), top, 0)
    weight = torch.where(finite, torch.exp(m - top), zero)
    total = weight.sum(dims, keepdim=True)
    # with no score that is finite for sure the constant -inf
    low_slope = weight / torch.where(total > 0, total, 1)
    at = top + shift
    low_bias = torch.log(total) - (low_slope * (m - top)).sum(dims, keepdim=True)
    low_bias = low_bias + at - (low_slope * at).sum(dims, keepdim=True)

    rise, start = exp_chord(a, b, zero)
    rise = torch.where(finite, rise, zero)
    start = torch.where(finite, start, torch.exp(x.upper - shift))  # from -inf on that constant
    level = (rise * m + start).sum(dims, keepdim=True)
    up_slope = rise / level
    up_bias = torch.log(level) + start.sum(dims, keepdim=True) / level - 1
    up_bias = up_bias + shift - (up_slope * shift).sum(dims, keepdim=True)
    up_bias = torch.where(torch.isposinf(level), torch.inf, up_bias)
    return (low_slope, low_bias), (up_slope, up_bias), m + shift


def _dims(call: Call) -> tuple[tuple[int, ...], bool]:
    return tuple(dimensions(call["dim"], len(call["self"].shape))), call["keepdim"]


def lse_interval(call: Call) -> Interval:
    f = call.bind()
    (x,) = call.inputs
    return Interval(f(x.lower), f(x.upper))


def lse_planes(call: Call) -> Relaxation:
    (x,) = call.inputs
    dims, keep = _dims(call)
    (low_slope, low_bias), (up_slope, up_bias), _ = lse_both(x, dims)
    space = result = string.ascii_lowercase[: len(x.shape)]
    kept = dims
    if not keep:
        result = "".join(letter for i, letter in enumerate(space) if i not in dims)
        low_bias, up_bias = low_bias.squeeze(dims), up_bias.squeeze(dims)
        kept = ()
    return Planes(
        space, result, (space,),
        (low_slope,), low_bias, (up_slope,), up_bias,
        (x.shape,), kept=kept,
    )  # fmt: skip


register(aten.logsumexp, rule=Relaxed(lse_interval, lse_planes))
