"""Order statistics: sort. All others (topk, median, quantiles) are compositions of it.

The k-th smallest of n entries (k from 0) is monotone in each of them: its values at the lower and
at the upper ends bound it, and both are taken. For linear bounds, with any set T of n - k entries,

    y_k >= min x_i over T >= c - sum relu(c - x_i) over T    for any constant c.

T are the n - k entries with the largest lower bounds, c is their least upper bound, and each relu
is bounded by its chord from (l_i, c - l_i) to (u_i, 0), those that cannot fall below c by 0. If the
rank of an entry is settled by the intervals, T is that entry and what lies above it, c is its upper
bound, and the plane is the entry itself. The other candidate is the constant; what is higher at the
centre of the box is taken. An upper bound of y_k is minus a lower one of the (n - 1 - k)-th
smallest of -x.
"""

from __future__ import annotations

import string

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import constant_lines
from boundlab.relaxations.planes import Planes
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.curves import ROOM
from boundlab.rules.registry import Call, Relaxed, aten, register

VALUES = 0
"""Which result of sort holds the values; the other one holds their places."""


def _interval(call: Call) -> Interval:
    (x,) = call.inputs
    if call.node.output != VALUES:
        return _places(call)
    f = call.bind()
    return Interval(f(x.lower), f(x.upper))


def _planes(call: Call) -> Relaxation:
    (x,) = call.inputs
    if call.node.output != VALUES or not x.shape:
        return constant_lines(_interval(call), call.inputs)
    dim = call["dim"] % len(x.shape)
    l, u = x.lower.movedim(dim, -1), x.upper.movedim(dim, -1)
    lower, low = _below(l, u)
    upper, up = _below(-u, -l)
    upper, up = upper.flip(-2), -up.flip(-1)
    if call["descending"]:
        lower, low, upper, up = lower.flip(-2), low.flip(-1), upper.flip(-2), up.flip(-1)
    letters = string.ascii_lowercase[: len(x.shape)]
    entry = letters.replace(letters[dim], "z")
    back = lambda t: t.movedim(-1, dim)
    return Planes(
        letters + "z", letters, (entry,),
        (lower.movedim(-2, dim),), back(low), (upper.movedim(-2, dim),), back(up), (x.shape,),
    )  # fmt: skip


def _below(l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Planes below the order statistics of entries (..., n): slopes (..., n ranks, n entries) and
    intercepts (..., n ranks)."""
    count = l.shape[-1]
    place = l.argsort(-1).argsort(-1)
    rank = torch.arange(count, device=l.device)
    kept = place.unsqueeze(-2) >= rank.unsqueeze(-1)  # T, (..., ranks, entries)
    l, u = l.unsqueeze(-2), u.unsqueeze(-2)
    c = torch.where(kept, u, torch.inf).amin(-1, keepdim=True)
    gap = u - l
    wide = gap > 0
    slope = torch.where(kept & wide, (c - l) / torch.where(wide, gap, 1), 0).clamp(0, 1)
    # (u - l) that is no number has no slope, nor has the plane
    slope = torch.where(kept & ~torch.isfinite(gap), torch.nan, slope)
    used = slope != 0
    level = c.squeeze(-1) - torch.where(used, slope * u, 0).sum(-1)
    size = torch.where(used, slope * torch.maximum(l.abs(), u.abs()), 0).sum(-1)
    level = level - ROOM * torch.finfo(l.dtype).eps * (size + c.squeeze(-1).abs())
    constant = l.squeeze(-2).sort(-1).values
    middle = torch.where(used, slope * (l / 2 + u / 2), 0).sum(-1) + level
    better = middle > constant
    return torch.where(better.unsqueeze(-1), slope, 0), torch.where(better, level, constant)


def _places(call: Call) -> Interval:
    """The first and the last place that an entry of each rank can come from: not from one with too
    many others surely below it, or surely above."""
    (x,) = call.inputs
    if not x.shape:
        zero = torch.zeros([], dtype=torch.int64, device=x.device)
        return Interval(zero, zero)
    dim = call["dim"] % len(x.shape)
    l, u = x.lower.movedim(dim, -1), x.upper.movedim(dim, -1)
    if call["descending"]:
        l, u = -u, -l
    count = l.shape[-1]
    under = (u.unsqueeze(-2) < l.unsqueeze(-1)).sum(-1)
    over = (l.unsqueeze(-2) > u.unsqueeze(-1)).sum(-1)
    rank = torch.arange(count, device=l.device).unsqueeze(-1)
    possible = (under.unsqueeze(-2) <= rank) & (rank < count - over.unsqueeze(-2))
    place = torch.arange(count, device=l.device)
    first = torch.where(possible, place, count).amin(-1)
    last = torch.where(possible, place, -1).amax(-1)
    return Interval(first.movedim(-1, dim), last.movedim(-1, dim))


# the places jump
register(aten.sort, rule=Relaxed(_interval, _planes, has_jumps=True))
