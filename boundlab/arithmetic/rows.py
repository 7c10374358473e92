"""What a row of the table of rounding errors says, and the kinds of rows.

A row answers two questions of an operator: how far a machine's result may be from the exact one,
for exact arguments in their intervals (``error``), and how large the terms are that it adds up
(``size``), which is what the analysis rounds itself.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import SPARE, Format, gamma
from boundlab.graph.graph import Operator
from boundlab.relaxations.interval import Interval
from boundlab.rules.registry import Call

Range = tuple[float, float]
"""What no result leaves, rounded or not."""
ANYWHERE: Range = (-math.inf, math.inf)
NOT_NEGATIVE: Range = (0.0, math.inf)


class Row(ABC):
    """The rounding errors of one operator. spare: how much larger those of a machine may be: 1
    where they are derived from rounding to nearest, more where they were measured."""

    @property
    def spare(self) -> float:
        return 1.0

    @property
    def keeps_infinity(self) -> bool:
        """Whether a result is infinite only where an argument is: a mask stays one."""
        return False

    def by_value(self, call: Call) -> bool:
        """Whether the error depends on the value."""
        return True

    @abstractmethod
    def error(
        self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format
    ) -> Tensor | None:
        """How far a result may be from ``value``, the exact one, in the shape of that; None if the
        operator rounds nothing. size: what :meth:`size` says of the call."""

    def range(self, call: Call) -> Range:
        """What no result leaves."""
        return ANYWHERE

    def size(self, call: Call) -> Tensor | None:
        """The sum of the magnitudes of all terms, for operators that add up products of their
        arguments; None for others."""
        return None

    def moved(self, call: Call) -> Tensor | None:
        """How far the result moves by what its constants are off, for operators that have a size;
        None if all are exact."""
        return moved_by_errors(call)


def magnitude(leaf: object, error: Tensor | None = None) -> object:
    """The largest absolute value that an argument may have: of intervals, tensors and numbers;
    whole numbers and all else as they are. error: how far a constant may be from what is given."""
    if isinstance(leaf, Interval):
        if leaf.dtype == torch.bool:
            return leaf.upper
        return torch.maximum(leaf.lower.abs(), leaf.upper.abs())
    if isinstance(leaf, Tensor) and leaf.is_floating_point():
        if error is None:
            return leaf.abs()
        return leaf.abs() + error
    if isinstance(leaf, float):
        return abs(leaf)
    return leaf


def of_magnitudes(call: Call, operator: Operator | None = None, errors: bool = False) -> Tensor:
    """The operator, or another one of its signature, at the magnitudes of its arguments: for one
    whose coefficients are products of these, the sum of the magnitudes of all terms. errors:
    whether constants count with what they may be off."""
    leaves = list(call.leaves)
    for place, leaf in enumerate(leaves):
        leaves[place] = magnitude(leaf, call.errors.get(place) if errors else None)
    args, kwargs = call.nested(leaves)
    if operator is not None:
        found = operator(*args, **kwargs)
    else:
        found = call.node.call(args, kwargs)
    return found.abs()


def moved_by_errors(call: Call, operator: Operator | None = None) -> Tensor | None:
    """How far the result moves by what its constants are off: the operator is a polynomial with
    coefficients of one sign in the magnitudes, linear in each. None if all are exact."""
    if not call.errors:
        return None
    return of_magnitudes(call, operator, errors=True) - of_magnitudes(call, operator)


@dataclass(frozen=True, eq=False)
class Exact(Row):
    """Nothing is rounded: elements are moved, chosen, compared, or change their sign. linear:
    whether results are elements of the arguments, whatever their values."""

    linear: bool = False
    limits: Callable[[Call], Range] = lambda call: ANYWHERE

    @property
    def keeps_infinity(self) -> bool:
        return True

    def by_value(self, call: Call) -> bool:
        return False

    def error(
        self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format
    ) -> Tensor | None:
        return None

    def range(self, call: Call) -> Range:
        return self.limits(call)

    def size(self, call: Call) -> Tensor | None:
        if self.linear:
            return of_magnitudes(call)
        return None


@dataclass(frozen=True, eq=False)
class Sums(Row):
    """Sums of products, in any order, with or without fused multiply-add. count: how many roundings
    a term may pass; absolute: the operator with positive coefficients, where it is not itself that.

    |fl(sum t_i) - sum t_i| <= gamma(count) sum |t_i| + count smallest.

    rising: whether no coefficient is negative that the arguments do not make so. Where these are
    not negative either, sum |t_i| is the value, and the error is relative to that.
    """

    count: Callable[[Call], int]
    absolute: Operator | None = None
    rising: Callable[[Call], bool] = lambda call: False

    @property
    def keeps_infinity(self) -> bool:
        return True

    def by_value(self, call: Call) -> bool:
        # a constant that is off may be negative when it is executed
        return not call.errors and self.rising(call) and all(map(_is_not_negative, call.leaves))

    def error(self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format) -> Tensor:
        assert size is not None
        count = self.count(call) + 2  # a number given as such is rounded to the format; to spare
        terms = size
        if self.by_value(call):
            terms = value.abs()
        error = gamma(count, arithmetic.unit) * terms + count * arithmetic.smallest
        # a partial sum may overflow though the result would not
        return torch.where(size * 2 < arithmetic.largest, error, torch.inf)

    def range(self, call: Call) -> Range:
        """Sums of what is not negative are not negative."""
        if self.by_value(call):
            return NOT_NEGATIVE
        return ANYWHERE

    def size(self, call: Call) -> Tensor:
        return of_magnitudes(call, self.absolute)

    def moved(self, call: Call) -> Tensor | None:
        return moved_by_errors(call, self.absolute)


def _is_not_negative(leaf: object) -> bool:
    if isinstance(leaf, Interval):
        leaf = leaf.lower
    if isinstance(leaf, Tensor):
        return bool((leaf >= 0).all())
    return not isinstance(leaf, float) or leaf >= 0


@dataclass(frozen=True, eq=False)
class Cast(Row):
    """Conversions between formats that hold each other's numbers, and of truth values; whole
    numbers are rounded."""

    def by_value(self, call: Call) -> bool:
        return False

    def error(
        self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format
    ) -> Tensor | None:
        x = call.leaves[0]
        assert isinstance(x, (Interval, Tensor))
        if x.dtype.is_floating_point or x.dtype == torch.bool:
            return None
        return value.abs() * arithmetic.unit

    def size(self, call: Call) -> Tensor | None:
        return of_magnitudes(call)


@dataclass(frozen=True, eq=False)
class Pointwise(Row):
    """Functions of each element, with an error that is measured (benchmarks/ulps.py):

    |fl(f(x)) - f(x)| <= unit (of_value |f(x)| + of_argument |x| + of_one) + floor smallest.

    The last term is what is lost near 0, where results are flushed.
    """

    of_value: float
    of_argument: float = 0.0
    of_one: float = 0.0
    limits: Range | Callable[[Call], Range] = ANYWHERE
    floor: float = 4.0

    @property
    def spare(self) -> float:
        return SPARE

    def error(self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format) -> Tensor:
        error = value.abs() * (self.of_value * arithmetic.unit)
        error = error + (self.floor * arithmetic.smallest + self.of_one * arithmetic.unit)
        x = magnitude(call.leaves[0])
        largest = arithmetic.largest / 8  # kernels may overflow before the exact value does
        if isinstance(x, Tensor):
            if self.of_argument:
                error = error + x * (self.of_argument * arithmetic.unit)
            error = torch.where((x < largest) | torch.isinf(x), error, torch.inf)
        return torch.where(value.abs() < largest, error, torch.inf)

    def range(self, call: Call) -> Range:
        if callable(self.limits):
            return self.limits(call)
        return self.limits


@dataclass(frozen=True, eq=False)
class Derived(Row):
    """Operators with an error of their own derivation. bound: from the call, the exact
    value and a format the error of each element of the result."""

    bound: Callable[[Call, Tensor, Format], Tensor]
    limits: Range = ANYWHERE

    @property
    def spare(self) -> float:
        return SPARE  # it is made of functions of one element

    def error(self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format) -> Tensor:
        return self.bound(call, value, arithmetic)

    def range(self, call: Call) -> Range:
        return self.limits


def elements(call: Call, place: int | str) -> Sequence[int]:
    """The shape of an argument."""
    shape: Sequence[int] = call[place].shape
    return shape
