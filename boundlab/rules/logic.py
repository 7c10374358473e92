"""Comparisons, logical operators, and choices between values.

The interval of a truth value is a pair of truth values: ``lower`` says that it is certainly true,
``upper`` that it may be true. It has no slope; converted to a number it lies in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.errors import UnsupportedOperator
from boundlab.relaxations.interval import Interval, Value, lower_of, upper_of
from boundlab.relaxations.lines import Lines, constant_lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.affine import Affine, truth
from boundlab.rules.registry import Call, Relaxed, Rule, aten, register, within


def _truth(bound: Callable[[Call], Interval]) -> Relaxed:
    """The rule of an operator whose result is a truth value."""
    return Relaxed(
        bound, lambda call: constant_lines(bound(call), call.inputs), kind="logic", has_jumps=True
    )


# -- comparisons -----------------------------------------------------------------------------------


def _rises(compare: Callable[[Tensor, Tensor], Tensor]) -> Relaxed:
    """A comparison that gets truer as x grows and y falls."""

    def interval(call: Call) -> Interval:
        x, y = call["self"], call["other"]
        return Interval(
            compare(lower_of(x), upper_of(y)),
            compare(upper_of(x), lower_of(y)),
        )

    return _truth(interval)


def _falls(compare: Callable[[Tensor, Tensor], Tensor]) -> Relaxed:
    """A comparison that gets truer as x falls and y grows."""

    def interval(call: Call) -> Interval:
        x, y = call["self"], call["other"]
        return Interval(
            compare(upper_of(x), lower_of(y)),
            compare(lower_of(x), upper_of(y)),
        )

    return _truth(interval)


def _equal(call: Call) -> Interval:
    """Certain of two equal points, possible where intervals meet."""
    x, y = call["self"], call["other"]
    lx, ux = lower_of(x), upper_of(x)
    ly, uy = lower_of(y), upper_of(y)
    return Interval((lx == uy) & (ux == ly) & (lx == ux), (lx <= uy) & (ly <= ux))


def _unequal(call: Call) -> Interval:
    """Certain of intervals apart, possible unless both are one point."""
    x, y = call["self"], call["other"]
    lx, ux = lower_of(x), upper_of(x)
    ly, uy = lower_of(y), upper_of(y)
    return Interval((lx > uy) | (ly > ux), ~((lx == uy) & (ux == ly) & (lx == ux)))


def _negative(call: Call) -> Interval:
    """The sign bit: zero has either."""
    (x,) = call.inputs
    return Interval(x.upper < 0, x.lower <= 0)


register(aten.gt, aten.greater, rule=_rises(torch.gt))
register(aten.ge, aten.greater_equal, rule=_rises(torch.ge))
register(aten.lt, aten.less, rule=_falls(torch.lt))
register(aten.le, aten.less_equal, rule=_falls(torch.le))
register(aten.eq, rule=_truth(_equal))
register(aten.ne, rule=_truth(_unequal))
register(aten.signbit, rule=_truth(_negative))

# -- logical operators -----------------------------------------------------------------------------


def _monotone_logic(call: Call) -> Interval:
    f = call.bind()
    inputs = [truth(x) for x in call.inputs]
    return Interval(f(*[x.lower for x in inputs]), f(*[x.upper for x in inputs]))


def _negation(call: Call) -> Interval:
    x = truth(call.inputs[0])
    f = call.bind()
    return Interval(f(x.upper), f(x.lower))


def _falling(call: Call) -> Interval:
    """~x, which is -1 - x for whole numbers."""
    (x,) = call.inputs
    f = call.bind()
    return Interval(f(x.upper), f(x.lower))


def _of_truth_values(bound: Callable[[Call], Interval]) -> Callable[[Call], Interval]:
    """Bounds of an operator on bits, where these are truth values."""

    def interval(call: Call) -> Interval:
        for leaf in call.leaves:
            is_value = isinstance(leaf, (Interval, Tensor))
            if (is_value and leaf.dtype != torch.bool) or type(leaf) is int:
                raise UnsupportedOperator(
                    f"{call.node}: the bits of perturbed whole numbers have no rule; write "
                    "remainders and quotients, or tables that the number looks up"
                )
        return bound(call)

    return interval


def _exclusive(call: Call) -> Interval:
    x, y = _truth_of(call["self"]), _truth_of(call["other"])
    lx, ux = lower_of(x), upper_of(x)
    ly, uy = lower_of(y), upper_of(y)
    return Interval((lx & ~uy) | (ly & ~ux), (ux & ~ly) | (uy & ~lx))


def _truth_of(value: Value) -> Value:
    if isinstance(value, Interval):
        return truth(value)
    return value.bool()


register(
    aten.logical_and,
    aten.logical_or,
    aten.any,
    aten.all,
    rule=_truth(_monotone_logic),
)
register(
    aten.bitwise_and, aten.bitwise_or, aten.__and__, aten.__or__,
    rule=_truth(_of_truth_values(_monotone_logic)),
)  # fmt: skip
register(aten.logical_not, rule=_truth(_negation))
register(aten.bitwise_not, rule=_truth(_falling))
register(aten.logical_xor, rule=_truth(_exclusive))
register(aten.bitwise_xor, aten.__xor__, rule=_truth(_of_truth_values(_exclusive)))


# -- choices ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Where(Rule):
    """where(condition, x, y): affine for a constant condition. For a perturbed one, exactly the
    chosen branch where the condition is decided, and elsewhere the hull of both."""

    kind: str = "logic"

    def nonlinear(self, call: Call) -> bool:
        return isinstance(call["condition"], Interval)

    def interval(self, call: Call) -> Interval:
        if not self.nonlinear(call):
            return Affine().interval(call)
        condition, x, y = self._parts(call)
        low, up = condition.lower, condition.upper
        either = torch.minimum(lower_of(x), lower_of(y)), torch.maximum(upper_of(x), upper_of(y))
        lower = torch.where(low, lower_of(x), torch.where(up, either[0], lower_of(y)))
        upper = torch.where(low, upper_of(x), torch.where(up, either[1], upper_of(y)))
        return Interval(lower, upper)

    def relax(self, call: Call) -> Relaxation:
        if not self.nonlinear(call):
            return Affine().relax(call)
        condition, x, y = self._parts(call)
        ends = self.interval(call)
        dtype = ends.lower.dtype
        use_x, use_y = condition.lower.expand(ends.shape), ~condition.upper.expand(ends.shape)
        slopes, shapes = [torch.zeros_like(ends.lower)], [condition.shape]
        low = torch.where(use_x | use_y, ends.lower.new_zeros(()), ends.lower)
        up = torch.where(use_x | use_y, ends.upper.new_zeros(()), ends.upper)
        for value, use in ((x, use_x), (y, use_y)):
            if isinstance(value, Interval):
                slopes.append(use.to(dtype))
                shapes.append(value.shape)
            else:
                low, up = torch.where(use, value, low), torch.where(use, value, up)
        return Lines(tuple(slopes), low, tuple(slopes), up, tuple(shapes))

    def _parts(self, call: Call) -> tuple[Interval, Value, Value]:
        """The condition and the two branches, numbers as tensors of the type of the other."""
        condition = call["condition"]
        x, y = call["self"], call["other"]
        dtype = torch.get_default_dtype()
        for v in (y, x):
            if not isinstance(v, (int, float)):
                dtype = v.dtype
        return condition, _in_type(x, dtype, condition), _in_type(y, dtype, condition)


def _in_type(v: Value | float, dtype: torch.dtype, like: Interval) -> Value:
    """A number as a tensor on the device of another value; what is none as it is."""
    if isinstance(v, (int, float)):
        return torch.as_tensor(v, dtype=dtype, device=like.device)
    return v


register(aten.where, rule=Where())


@dataclass(frozen=True, eq=False)
class Within(Affine):
    """x itself, cut to an interval that is known to hold it."""

    def interval(self, call: Call) -> Interval:
        (x,) = call.inputs
        return x.intersect(
            Interval(torch.full_like(x.lower, call["low"]), torch.full_like(x.upper, call["high"]))
        )


register(within, rule=Within())
