"""Statements about the inputs x and outputs y of a model: linear inequalities, combined by and, or
and not.

    y[:, 0] - 2 * x[:, 3] <= 1,    (a & b) | ~c

An :class:`Inequality` is kept as ``linear <= 0`` or ``linear < 0``; not is carried down to the
inequalities at once, so that a formula is made of and, or and inequalities only.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from boundlab.errors import ArgumentError

MOST = 1 << 20
"""How many conjunctions a formula may have in disjunctive normal form."""
SHOWN = 6
"""How many parts of a formula, or terms of a sum, are printed."""


class Formula(ABC):
    """A statement that is true or false for given inputs and outputs."""

    def __and__(self, other: Formula) -> Formula:
        return And((self, _formula(other)))

    def __or__(self, other: Formula) -> Formula:
        return Or((self, _formula(other)))

    @abstractmethod
    def __invert__(self) -> Formula:
        """Not."""

    @abstractmethod
    def conjunctions(self) -> Iterator[tuple[Atom, ...]]:
        """The disjunctive normal form: the formula is true where all parts of one of these hold."""

    @abstractmethod
    def count(self) -> int:
        """How many conjunctions there are."""

    def __bool__(self) -> bool:
        raise ArgumentError(
            "a condition has no truth value: combine conditions by &, | and ~ with brackets around "
            "each comparison, not by and, or, not or a < b < c"
        )


@dataclass(frozen=True)
class Inequality(Formula):
    """linear <= 0, or linear < 0 if it is strict."""

    linear: Linear
    strict: bool = False

    def __invert__(self) -> Inequality:
        return Inequality(-self.linear, not self.strict)

    def conjunctions(self) -> Iterator[tuple[Atom, ...]]:
        yield (self,)

    def count(self) -> int:
        return 1

    def __str__(self) -> str:
        """Sums of what is added, on the sides where that is."""
        linear = self.linear
        left = Linear(_above(linear.inputs, 1), _above(linear.outputs, 1))
        right = Linear(_above(linear.inputs, -1), _above(linear.outputs, -1))
        less, greater = ("<", ">") if self.strict else ("<=", ">=")
        if left.is_number:
            return f"{right} {greater} {linear.constant:.9g}"
        return f"{left} {less} {right - linear.constant}"


@dataclass(frozen=True, eq=False)
class InputBounds(Formula):
    """Bounds of many inputs at once: x[index] <= end where ``upper``, else >= end; (count,) each.
    Files have hundreds of thousands of them."""

    index: np.ndarray
    upper: np.ndarray
    end: np.ndarray

    def inequalities(self) -> Iterator[Inequality]:
        """The same bounds, one by one."""
        for index, upper, end in zip(self.index, self.upper, self.end, strict=True):
            x = Linear.input(int(index))
            yield x <= float(end) if upper else x >= float(end)

    def __invert__(self) -> Formula:
        return ~And(tuple(self.inequalities()))

    def conjunctions(self) -> Iterator[tuple[Atom, ...]]:
        yield (self,)

    def count(self) -> int:
        return 1

    def __str__(self) -> str:
        return str(And(tuple(self.inequalities())))


Atom = Inequality | InputBounds
"""What formulas are made of."""


@dataclass(frozen=True)
class And(Formula):
    """All of the parts; true if there are none."""

    parts: tuple[Formula, ...]

    def __invert__(self) -> Or:
        return Or(tuple(~part for part in self.parts))

    def conjunctions(self) -> Iterator[tuple[Atom, ...]]:
        for chosen in itertools.product(*[tuple(part.conjunctions()) for part in self.parts]):
            yield tuple(itertools.chain.from_iterable(chosen))

    def count(self) -> int:
        return math.prod(part.count() for part in self.parts)

    def __str__(self) -> str:
        return _joined(self.parts, " and ") or "true"


@dataclass(frozen=True)
class Or(Formula):
    """One of the parts; false if there are none."""

    parts: tuple[Formula, ...]

    def __invert__(self) -> And:
        return And(tuple(~part for part in self.parts))

    def conjunctions(self) -> Iterator[tuple[Atom, ...]]:
        for part in self.parts:
            yield from part.conjunctions()

    def count(self) -> int:
        return sum(part.count() for part in self.parts)

    def __str__(self) -> str:
        return _joined(self.parts, " or ") or "false"


def _joined(parts: Sequence[Formula], word: str) -> str:
    """The first parts of a formula, those that are made of several in brackets."""
    if len(parts) == 1:
        return str(parts[0])
    found = [f"({part})" if _is_made_of_several(part) else str(part) for part in parts[:SHOWN]]
    if len(parts) > SHOWN:
        found.append(f"{len(parts) - SHOWN} more")
    return word.join(found)


def _is_made_of_several(formula: Formula) -> bool:
    return isinstance(formula, And | Or) and len(formula.parts) > 1


def _formula(value: object) -> Formula:
    if not isinstance(value, Formula):
        raise ArgumentError(
            f"conditions are combined with conditions, not with {type(value).__name__}: compare "
            "outputs, and put brackets around each comparison"
        )
    return value


@dataclass(frozen=True)
class Linear:
    """constant + sum of coefficients times elements of the flat input and of the flat output."""

    inputs: Mapping[int, float]
    outputs: Mapping[int, float]
    constant: float = 0.0

    @staticmethod
    def input(index: int) -> Linear:
        return Linear({index: 1.0}, {})

    @staticmethod
    def output(index: int) -> Linear:
        return Linear({}, {index: 1.0})

    @staticmethod
    def number(value: float) -> Linear:
        return Linear({}, {}, value)

    @property
    def is_number(self) -> bool:
        return not self.inputs and not self.outputs

    def scaled(self, factor: float) -> Linear:
        return Linear(
            {i: factor * c for i, c in self.inputs.items()},
            {i: factor * c for i, c in self.outputs.items()},
            factor * self.constant,
        )

    def __neg__(self) -> Linear:
        return self.scaled(-1.0)

    def __add__(self, other: Linear | float) -> Linear:
        b = _linear(other)
        return Linear(
            _sum(self.inputs, b.inputs),
            _sum(self.outputs, b.outputs),
            self.constant + b.constant,
        )

    __radd__ = __add__

    def __sub__(self, other: Linear | float) -> Linear:
        return self + -_linear(other)

    def __rsub__(self, other: float) -> Linear:
        return _linear(other) - self

    def __mul__(self, other: Linear | float) -> Linear:
        b = _linear(other)
        if b.is_number:
            return self.scaled(b.constant)
        if self.is_number:
            return b.scaled(self.constant)
        raise ArgumentError(f"({self}) * ({b}) is not linear")

    __rmul__ = __mul__

    def __truediv__(self, other: Linear | float) -> Linear:
        b = _linear(other)
        if not b.is_number or b.constant == 0:
            raise ArgumentError(f"({self}) / ({b}): only numbers other than 0 divide")
        return self.scaled(1 / b.constant)

    def __le__(self, other: Linear | float) -> Inequality:
        return Inequality(self - other)

    def __lt__(self, other: Linear | float) -> Inequality:
        return Inequality(self - other, strict=True)

    def __ge__(self, other: Linear | float) -> Inequality:
        return Inequality(_linear(other) - self)

    def __gt__(self, other: Linear | float) -> Inequality:
        return Inequality(_linear(other) - self, strict=True)

    def __str__(self) -> str:
        terms = [(f"x{i}", c) for i, c in self.inputs.items()]
        terms += [(f"y{i}", c) for i, c in self.outputs.items()]
        found = [_term(name, c) for name, c in terms if c]
        if len(found) > SHOWN:
            found[SHOWN:] = [f"+ {len(found) - SHOWN} more terms"]
        if self.constant or not found:
            found.append(f"{_sign(self.constant)} {abs(self.constant):.9g}")
        text = " ".join(found).removeprefix("+ ")
        return "-" + text.removeprefix("- ") if text.startswith("- ") else text


def _term(name: str, coefficient: float) -> str:
    if abs(coefficient) == 1:
        return f"{_sign(coefficient)} {name}"
    return f"{_sign(coefficient)} {abs(coefficient):.9g} {name}"


def _sign(number: float) -> str:
    return "-" if number < 0 else "+"


def _above(coefficients: Mapping[int, float], sign: int) -> dict[int, float]:
    """The coefficients of a sign, without it."""
    return {i: sign * c for i, c in coefficients.items() if sign * c > 0}


def _linear(value: object) -> Linear:
    if isinstance(value, Linear):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return Linear.number(float(value))
    raise ArgumentError(
        f"a condition compares outputs with outputs or finite numbers, not {value!r}"
    )


def _sum(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
    found = dict(a)
    for index, coefficient in b.items():
        found[index] = found.get(index, 0.0) + coefficient
    return found


COMPARISONS: dict[str, Callable[[Linear, Linear], Formula]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "=": lambda a, b: (a <= b) & (a >= b),
}
"""What files call comparisons."""
