"""The largest value over dimensions; max pooling and minima are compositions of it.

y = max_j x_j. Below: y >= x_j for every j; take the j with the largest lower bound. Above, for any
constant c no larger than y: y <= c + sum_j relu(x_j - c); take c = max_j l_j, so that only entries
that can exceed it count, and bound each relu by its chord. If one entry dominates, this is exactly
that entry. The other candidate is the constant max_j u_j; take what is lower at the centre of the
box. For two entries y = x_1 + relu(x_2 - x_1), whose chord is the best plane there is.
"""

from __future__ import annotations

import string

import torch
from torch import Tensor

from boundlab.kernels.reductions import all_finite
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import constant_lines
from boundlab.relaxations.planes import Planes
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import Call, Relaxed, SlopeFamily, aten, register
from boundlab.rules.settings import dimensions


def _over(call: Call) -> tuple[list[int], bool]:
    """The dimensions that the maximum is taken over, and whether they stay."""
    return dimensions(call["dim"], len(call["self"].shape)), call["keepdim"]


def _interval(call: Call) -> Interval:
    f = call.bind()
    (x,) = call.inputs
    return Interval(f(x.lower), f(x.upper))


def _planes(call: Call, alphas: Tensor | None = None) -> Relaxation:
    """numbers: the share of the entry with the largest upper bound below, and of the constant
    above."""
    (x,) = call.inputs
    dims, keep = _over(call)
    n = len(x.shape)
    rest = [d for d in range(n) if d not in dims]
    l, u = _gathered(x.lower, rest, dims), _gathered(x.upper, rest, dims)
    best = l.argmax(-1, keepdim=True)
    low_slope = torch.zeros_like(l).scatter(-1, best, 1.0)
    low_bias = torch.zeros_like(l[..., 0])

    floor = l.amax(-1, keepdim=True)
    chord = _ratio(u, floor, torch.where(u > l, u, 1), torch.where(u > l, l, 0)).clamp(min=0)
    active = u > floor
    others = active.scatter(-1, best, False).any(-1, keepdim=True)
    # The entry with the best lower bound has relu(x - c) = x - c, slope 1.
    slope = torch.where(active, chord, 0).scatter(-1, best, 1.0)
    bias = floor.squeeze(-1) + torch.where(active, -slope * l, 0).scatter(-1, best, -floor).sum(-1)
    # an entry of -inf (padding) has no slope
    centre = torch.where(active | (slope != 0), (l + u) / 2, 0)
    peak = u.amax(-1)
    sloped = ((slope * centre).sum(-1) + bias < peak) | ~others.squeeze(-1)
    up_slope = torch.where(sloped.unsqueeze(-1), slope, 0)
    up_bias = torch.where(sloped, bias, peak)
    if alphas is not None:
        below, above = (part.reshape(low_bias.shape) for part in alphas)
        above = torch.where(others.squeeze(-1), above, 0)
        highest = torch.zeros_like(l).scatter(-1, u.argmax(-1, keepdim=True), 1.0)
        low_slope = torch.lerp(low_slope, highest, below.unsqueeze(-1))
        up_slope, up_bias = (1 - above).unsqueeze(-1) * slope, (1 - above) * bias + above * peak
    if l.shape[-1] == 2:
        up_slope, up_bias = _above_two(l, u)
    space, result = _letters(n, dims, keep)
    unflatten = lambda t: t.reshape([x.shape[d] for d in rest + dims])
    bias_shape = call.bind()(x.lower).shape
    kept: tuple[int, ...] = ()
    if keep:
        kept = tuple(dims)
    return Planes(
        space, result, (string.ascii_lowercase[:n],), (unflatten(low_slope),),
        low_bias.reshape(bias_shape),
        (unflatten(up_slope),), up_bias.reshape(bias_shape), (x.shape,),
        kept=kept,
    )  # fmt: skip


def _gathered(t: Tensor, rest: list[int], dims: list[int]) -> Tensor:
    """The dimensions to reduce as one, last: (*rest, entries)."""
    if not dims:
        return t
    return t.permute(*rest, *dims).flatten(len(rest))


def _above_two(l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The upper plane over two entries, (..., 2): slopes of that shape and intercepts (...)."""
    low, up = l[..., 1] - u[..., 0], u[..., 1] - l[..., 0]
    crossing = (low < 0) & (up > 0)
    rise = _ratio(up, torch.zeros_like(up), torch.where(crossing, up, 1), low.clamp(max=0))
    share = torch.where(crossing, rise, (low >= 0).to(l.dtype))
    # relu(d) - share d on [low, up] is largest at an end, for any share: infinite where the ends
    # are beyond all numbers
    share = share.nan_to_num(0.5)
    ends = torch.maximum(-share * low, (1 - share) * up).nan_to_num(torch.inf, torch.inf)
    return torch.stack([1 - share, share], -1), torch.where(crossing, ends, 0)


def _ratio(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """(a - b) / (c - d), by quarters where the lower difference overflows, which would make it
    0."""
    gap = c - d
    overflows = torch.isinf(gap) & torch.isfinite(c) & torch.isfinite(d)
    return torch.where(overflows, (a / 4 - b / 4) / (c / 4 - d / 4), (a - b) / gap)


def _letters(n: int, dims: list[int], keep: bool) -> tuple[str, str]:
    """The letters of all entries, those that are reduced last, and those of the result."""
    letters = string.ascii_lowercase[:n]
    rest = [d for d in range(n) if d not in dims]
    space = "".join(letters[d] for d in rest + dims)
    if keep:
        return space, letters
    return space, "".join(letters[d] for d in rest)


def _family(call: Call) -> SlopeFamily | None:
    (x,) = call.inputs
    if not all_finite(x.lower, x.upper):
        return None
    start = torch.zeros_like(call.bind()(x.lower))
    return SlopeFamily(
        torch.stack([start, start]), lambda alphas: _planes(call, alphas), by_row=False
    )


register(aten.amax, rule=Relaxed(_interval, _planes, choices=_family))


def _position(call: Call, largest: bool) -> Interval:
    """The first and the last place where the extreme value can be: entries that are not surely
    beaten."""
    (x,) = call.inputs
    axis, keep = call["dim"], call["keepdim"]
    low, up = x.lower, x.upper
    if not largest:
        low, up = -up, -low
    if axis is None:
        low, up = low.flatten(), up.flatten()
        axis = -1
    possible = ~(up < low.amax(axis, keepdim=True))  # of NaN nothing is known
    behind = low.dim() - 1 - axis % max(low.dim(), 1)
    place = torch.arange(low.shape[axis], device=low.device).reshape(-1, *[1] * behind)
    first = torch.where(possible, place, low.shape[axis]).amin(axis, keepdim=keep)
    last = torch.where(possible, place, -1).amax(axis, keepdim=keep)
    shape = call.bind()(x.lower).shape
    return Interval(first.reshape(shape), last.reshape(shape))


def _places(largest: bool) -> Relaxed:
    bound = lambda call: _position(call, largest)
    return Relaxed(
        bound, lambda call: constant_lines(bound(call), call.inputs), kind="logic", has_jumps=True
    )


register(aten.argmax, rule=_places(largest=True))
register(aten.argmin, rule=_places(largest=False))
