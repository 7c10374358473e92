"""Rounding to whole numbers, of values and of quotients, and places in a sorted sequence.

floor(x) lies in (x - 1, x], ceil(x) in [x, x + 1), round(x) in [x - 1/2, x + 1/2], trunc(x) between
x - 1 and x + 1; each is monotone, so its values at the ends bound it too. Of these lines the one
that is better in the middle is taken.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from boundlab.errors import DomainError, UnsupportedOperator
from boundlab.relaxations.interval import Interval, lower_of, upper_of
from boundlab.relaxations.lines import Lines, constant_lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import Call, Relaxed, aten, register


def _lines(x: Interval, ends: Interval, scale: Tensor | float, below: float, above: float) -> Lines:
    """The lines of a step function between ``scale x + below`` and ``scale x + above`` and between
    its ends."""
    middle, jumps = x.centre * scale, ends.lower < ends.upper
    low, up = (middle + below > ends.lower) & jumps, (middle + above < ends.upper) & jumps
    zero = torch.zeros_like(ends.lower)
    slope = zero + scale
    return Lines(
        (torch.where(low, slope, zero),), torch.where(low, below, ends.lower),
        (torch.where(up, slope, zero),), torch.where(up, above, ends.upper),
        (x.shape,),
    )  # fmt: skip


def _step(below: float, above: float) -> Relaxed:
    def interval(call: Call) -> Interval:
        (x,) = call.inputs
        f = call.bind()
        return Interval(f(x.lower), f(x.upper))

    return Relaxed(
        interval,
        lambda call: _lines(call.inputs[0], interval(call), 1.0, below, above),
        kind="elementwise",
        has_jumps=True,
    )


register(aten.floor, rule=_step(-1.0, 0.0))
register(aten.ceil, rule=_step(0.0, 1.0))
register(aten.round.default, rule=_step(-0.5, 0.5))
register(aten.trunc, aten.fix, rule=_step(-1.0, 1.0))

# -- places in a sorted sequence -------------------------------------------------------------------


def _place(call: Call) -> Interval:
    """How many boundaries lie below a value grows with it: the places of the ends. Of NaN, which
    torch sorts behind everything, nothing is known: it counts as infinite, on either side."""
    if len(call.inputs) > 1 or not isinstance(call["self"], Interval):
        raise UnsupportedOperator(
            f"{call.node}: its boundaries depend on what is perturbed; only constant ones have a "
            "rule"
        )
    (x,) = call.inputs
    f, inf = call.bind(), torch.inf
    low, up = x.lower.contiguous(), x.upper.contiguous()  # else torch warns that it copies them
    if x.dtype.is_floating_point:
        low, up = low.nan_to_num(-inf, inf, -inf), up.nan_to_num(inf, inf, -inf)
    return Interval(f(low), f(up))


register(
    aten.bucketize.Tensor,
    aten.searchsorted.Tensor,
    rule=Relaxed(
        _place,
        lambda call: constant_lines(_place(call), call.inputs),
        kind="elementwise",
        has_jumps=True,
    ),
)

# -- rounded quotients -----------------------------------------------------------------------------


def _quotient_interval(call: Call) -> Interval:
    """For y of one sign the quotient is monotone in either argument, and rounding keeps that: the
    corners bound it. A fixed divisor of 0 is refused as well: 0 / 0 is no number."""
    x, y = call["self"], call["other"]
    if isinstance(y, Interval):
        call.require((y.lower > 0) | (y.upper < 0), "division by an interval that contains zero")
    elif bool((torch.as_tensor(y) == 0).any()):
        raise DomainError(f"{call.node}: it divides by a constant that is 0, which gives no number")
    ends = itertools.product((lower_of(x), upper_of(x)), (lower_of(y), upper_of(y)))
    mode = {"rounding_mode": call["rounding_mode"]}
    corners = torch.stack([call.node.call(corner, mode) for corner in ends])
    return Interval(corners.amin(0), corners.amax(0))


def _quotient_lines(call: Call) -> Relaxation:
    x, y = call["self"], call["other"]
    ends = _quotient_interval(call)
    if isinstance(y, Interval):
        return constant_lines(ends, call.inputs)
    below, above = BETWEEN[call["rounding_mode"]]
    return _lines(x, ends, 1 / y, below, above)


BETWEEN: dict[str | None, tuple[float, float]] = {
    "floor": (-1.0, 0.0),
    "trunc": (-1.0, 1.0),
    None: (0.0, 0.0),
}
register(aten.div.Tensor_mode, rule=Relaxed(_quotient_interval, _quotient_lines, has_jumps=True))
