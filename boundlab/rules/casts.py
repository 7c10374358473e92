"""Casts that lose something: to a shorter floating-point type, which rounds, and to whole numbers,
which cuts off.

Rounding to nearest is monotone, so its values at the ends bound it. With the relative spacing eps
of the type, its smallest number s and m = max(|l|, |u|) it moves x by at most r = eps m / 2 + s /
2: the lines x - r and x + r, while nothing overflows. Cutting off is monotone as well, inside the
range of the type; beyond it the result is not defined, and refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines, constant_lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import Call, Relaxed, Rule, aten, register


def rounded(x: Tensor, *, dtype: torch.dtype, **where: Any) -> Tensor:
    """x in a shorter floating-point type."""
    copied: Tensor = aten._to_copy.default(x, dtype=dtype, **where)
    return copied


def rounded_in_place(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    """x rounded to a shorter type and back in its own: no arithmetic happens in between, so none
    need be followed there."""
    return x.to(dtype).to(x.dtype)


def cut_off(x: Tensor, *, dtype: torch.dtype, **where: Any) -> Tensor:
    """x as a whole number, towards 0."""
    copied: Tensor = aten._to_copy.default(x, dtype=dtype, **where)
    return copied


def keeps_values(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether every number of one type is one of the other, too; between whole numbers, and from
    truth values, as well."""
    if target.is_floating_point and source.is_floating_point:
        a, b = torch.finfo(source), torch.finfo(target)
        smallest = b.smallest_normal * b.eps <= a.smallest_normal * a.eps
        return b.eps <= a.eps and b.max >= a.max and smallest
    if target == torch.bool or source == torch.bool:
        return True
    if target.is_complex:
        return keeps_values(source.to_real() if source.is_complex else source, target.to_real())
    if not target.is_floating_point and not source.is_floating_point:
        c, d = torch.iinfo(source), torch.iinfo(target)
        return d.min <= c.min and d.max >= c.max
    # a whole number as a floating-point one has no slope to lose
    return not source.is_floating_point


def _ends(call: Call) -> Interval:
    (x,) = call.inputs
    f = call.bind()
    return Interval(f(x.lower), f(x.upper))


def _rounded_lines(call: Call) -> Relaxation:
    (x,) = call.inputs
    ends = _ends(call)
    kind = torch.finfo(call["dtype"])
    # either of both may have the larger numbers
    wide_type = torch.promote_types(x.dtype, ends.dtype)
    low_end, up_end = ends.lower.to(wide_type), ends.upper.to(wide_type)
    most = torch.maximum(x.lower.abs(), x.upper.abs()).to(wide_type)
    moved = most * (kind.eps / 2) + kind.smallest_normal * kind.eps
    reach = (1 + 8 * torch.finfo(wide_type).eps) * moved
    wide = (low_end < up_end) & torch.isfinite(low_end) & torch.isfinite(up_end)
    middle = x.centre.to(wide_type)
    low, up = wide & (middle - reach > low_end), wide & (middle + reach < up_end)
    one, zero = torch.ones_like(middle), torch.zeros_like(middle)
    return Lines(
        (torch.where(low, one, zero),), torch.where(low, -reach, low_end),
        (torch.where(up, one, zero),), torch.where(up, reach, up_end), (x.shape,),
    )  # fmt: skip


def _cut_off_interval(call: Call) -> Interval:
    (x,) = call.inputs
    dtype = call["dtype"]
    span = torch.iinfo(dtype)
    lower, upper = _cut(x.lower), _cut(x.upper)
    # in float64 the largest int64 is not a number: one below the power of two behind it is asked
    # for
    inside = (lower >= span.min) & (upper <= span.max) & (upper < 2.0**63)
    call.require(
        inside,
        f"the interval of what becomes {dtype} must lie in [{span.min}, {span.max}]: beyond, "
        "values wrap around",
    )
    return _ends(call)


def _cut(end: Tensor) -> Tensor:
    """The whole number that an end of an interval becomes, before it is one."""
    if end.is_floating_point():
        return end.trunc().double()
    return end


def refuse_wrapping(rule: Rule, call: Call, found: Interval) -> None:
    """Refuse sums and products of perturbed whole numbers that leave their type, where values wrap
    around: as real numbers the result must lie in the range of the type."""
    if rule.kind not in ("affine", "bilinear", "elementwise") or call.node.op is cut_off:
        return
    if not _is_whole(found.dtype) or not any(_is_whole(x.dtype) for x in call.inputs):
        return
    real = rule.interval(replace(call, leaves=tuple(map(_as_real, call.leaves))))
    span = torch.iinfo(found.dtype)
    inside = (real.lower >= span.min) & (real.upper <= span.max) & (real.upper < 2.0**63)
    call.require(
        inside,
        f"the interval of its result must lie in [{span.min}, {span.max}], the range of "
        f"{found.dtype}: values wrap around",
    )


def _is_whole(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and dtype != torch.bool


def _as_real(leaf: object) -> object:
    """Whole numbers as real ones, and a type of theirs that is asked for."""
    if isinstance(leaf, torch.dtype) and _is_whole(leaf):
        return torch.float64
    if not isinstance(leaf, (Interval, Tensor)) or not _is_whole(leaf.dtype):
        return leaf
    if isinstance(leaf, Interval):
        return Interval(leaf.lower.double(), leaf.upper.double())
    return leaf.double()


register(
    rounded,
    rounded_in_place,
    rule=Relaxed(_ends, _rounded_lines, kind="elementwise", has_jumps=True),
)
register(
    cut_off,
    rule=Relaxed(
        _cut_off_interval,
        lambda call: constant_lines(_cut_off_interval(call), call.inputs),
        kind="elementwise",
        has_jumps=True,
    ),
)
