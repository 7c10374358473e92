"""Properties: what must hold for the outputs of every member of a region.

What is searched for and what is proved absent is the *unsafe set*: the inputs of the region whose
outputs break the condition. It has one form, whatever it was written in: cases, each a region and
clauses, each a conjunction of linear inequalities. An input x with output y is a violation if x
lies in the region of a case, and x and y satisfy every inequality of one of its clauses.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.errors import ArgumentError
from boundlab.regions import Linf, Region
from boundlab.regions.checks import Number
from boundlab.specs.formula import MOST, Atom, Formula, Inequality, InputBounds, Linear, Or

SHOWN = 5
"""How many cases are printed."""
UNCOUNTED = "it is not known how many elements there are"


class Unsafe(ABC):
    """What makes members of a region violations."""

    @abstractmethod
    def formula(self, inputs: int, outputs: int) -> Formula:
        """The formula of the unsafe set, of a model with so many inputs and outputs."""

    @abstractmethod
    def said(self, region: Region) -> str:
        """What must hold over a region, in a line."""


@dataclass(frozen=True)
class Symbols:
    """The elements of a flat value (batch, size), of which a condition speaks by ``y[:, i]``."""

    size: int
    make: Callable[[int], Linear]

    def __getitem__(self, index: object) -> Linear:
        match index:
            case (first, int(element)) if first == slice(None) or first is ...:
                return self._element(element)
        raise ArgumentError(
            "a condition speaks of single elements of the flat value, as in y[:, 3]; not of "
            f"[{index}]"
        )

    def _element(self, element: int) -> Linear:
        if not -self.size <= element < self.size:
            raise ArgumentError(f"there are {self.size} elements; {element} is none of them")
        return self.make(element % self.size)

    def __iter__(self) -> Iterator[Linear]:
        return map(self.make, range(self.size))

    def __len__(self) -> int:
        return self.size


class _Uncounted(Symbols):
    """The elements of a value of which it is not known how many there are."""

    def _element(self, element: int) -> Linear:
        if element < 0:
            raise ArgumentError(UNCOUNTED)
        return self.make(element)

    def __iter__(self) -> Iterator[Linear]:
        raise ArgumentError(UNCOUNTED)

    def __len__(self) -> int:
        raise ArgumentError(UNCOUNTED)


@dataclass(frozen=True, eq=False)
class Clause:
    """A conjunction of linear inequalities: A y + B x + c <= 0 in every row, < 0 where ``strict``.

    outputs: A, (rows, out). inputs: B, (rows, in), None if it is 0. constant: c, (rows,). strict:
    (rows,). All numbers are in double precision.
    """

    outputs: Tensor
    inputs: Tensor | None
    constant: Tensor
    strict: Tensor

    @staticmethod
    def of(inequalities: Sequence[Inequality], inputs: int, outputs: int) -> Clause:
        """The inequalities as matrices; 0 <= 0 if there are none, which always hold."""
        inequalities = inequalities or [Inequality(Linear.number(0.0))]
        A = torch.zeros(len(inequalities), outputs, dtype=torch.float64)
        B = None
        if any(one.linear.inputs for one in inequalities):
            B = torch.zeros(len(inequalities), inputs, dtype=torch.float64)
        for row, one in enumerate(inequalities):
            for element, coefficient in one.linear.outputs.items():
                A[row, element] = coefficient
            for element, coefficient in one.linear.inputs.items():
                assert B is not None
                B[row, element] = coefficient
        constant = torch.tensor([one.linear.constant for one in inequalities], dtype=torch.float64)
        strict = torch.tensor([one.strict for one in inequalities], dtype=torch.bool)
        return Clause(A, B, constant, strict)

    def excess(self, x: Tensor, y: Tensor) -> Tensor:
        """A y + B x + c for flat inputs (batch, in) and outputs (batch, out): (batch, rows); at
        most 0 where an inequality holds."""
        found = _product(y.double(), self.outputs.to(y.device))
        if self.inputs is not None:
            found = found + _product(x.to(y.device).double(), self.inputs.to(y.device))
        return found + self.constant.to(y.device)

    def holds(self, x: Tensor, y: Tensor, tolerance: float = 0.0) -> Tensor:
        """Whether every inequality holds, up to a tolerance: (batch,). NaN satisfies none."""
        excess, strict = self.excess(x, y), self.strict.to(y.device)
        open_ones = strict & (tolerance <= 0)
        return torch.where(open_ones, excess < tolerance, excess <= tolerance).all(1)


def _product(values: Tensor, coefficients: Tensor) -> Tensor:
    """values (batch, n) times coefficients (rows, n): (batch, rows). A value that is infinite or
    NaN counts only where its coefficient is not 0."""
    if bool(values.isfinite().all()):
        return values @ coefficients.T
    terms = torch.where(coefficients == 0, 0, values.unsqueeze(1) * coefficients)
    return terms.sum(2)


@dataclass(frozen=True, eq=False)
class Case:
    """A region, and the clauses of which one makes its members violations."""

    region: Region
    clauses: tuple[Clause, ...]


def _single(conjunction: Sequence[Atom]) -> list[Inequality]:
    """The inequalities of a conjunction, one by one."""
    found: list[Inequality] = []
    for atom in conjunction:
        if isinstance(atom, InputBounds):
            found += atom.inequalities()
        else:
            found.append(atom)
    return found


@dataclass(frozen=True)
class _Breach(Unsafe):
    """A condition of outputs, or of outputs and inputs, does not hold."""

    condition: Callable[..., Formula]
    takes_inputs: bool

    def formula(self, inputs: int, outputs: int) -> Formula:
        return ~self._asked(inputs, Symbols(outputs, Linear.output))

    def _asked(self, inputs: int, y: Symbols) -> Formula:
        """What must hold."""
        if self.takes_inputs:
            found = self.condition(y, Symbols(inputs, Linear.input))
        else:
            found = self.condition(y)
        if not isinstance(found, Formula):
            raise ArgumentError(
                "the condition of a property must compare outputs; it returned "
                f"{type(found).__name__}"
            )
        return found

    def said(self, region: Region) -> str:
        """The condition, if it can be had without knowing how many outputs there are."""
        try:
            asked = str(self._asked(region.centre.numel(), _Uncounted(0, Linear.output)))
        except Exception:  # it runs a user's function
            asked = "the condition holds"
        return f"for every x in {region}: {asked}"


@dataclass(frozen=True)
class _Changed(Unsafe):
    """Another class is at least as large as the label."""

    label: int

    def formula(self, inputs: int, outputs: int) -> Formula:
        y = Symbols(outputs, Linear.output)
        own = y[:, self.label]
        others = [one for k, one in enumerate(y) if k != self.label % outputs]
        return Or(tuple(other >= own for other in others))

    def said(self, region: Region) -> str:
        return f"for every x in {region}: output {self.label} is larger than all others"


class Property:
    """What must hold for every member of a region.

    region: of one sample, (1, *shape), or of a value without samples. condition: from symbolic
    outputs to what must hold for them, comparisons combined by ``&``, ``|`` and ``~``:
    ``lambda y: (y[:, 0] > y[:, 1]) | (y[:, 2] <= 3)``; with two arguments, of outputs and inputs.
    """

    def __init__(self, region: Region, condition: Callable[..., Formula]) -> None:
        if not isinstance(region, Region):
            raise ArgumentError(f"a property needs a region, not {type(region).__name__}")
        breach = _Breach(condition, len(inspect.signature(condition).parameters) > 1)
        self._parts: tuple[tuple[Region, Unsafe], ...] = ((region, breach),)

    @staticmethod
    def of_unsafe(parts: Sequence[tuple[Region, Unsafe]]) -> Property:
        """A property given by its unsafe set: regions, each with what is unsafe there."""
        found = object.__new__(Property)
        found._parts = tuple(parts)
        return found

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(region for region, _ in self._parts)

    @property
    def parts(self) -> tuple[tuple[Region, Unsafe], ...]:
        """The regions, each with what is unsafe there (:meth:`of_unsafe`)."""
        return self._parts

    def cases(self, outputs: int) -> tuple[Case, ...]:
        """The unsafe set of a model with so many outputs."""
        found = []
        for region, unsafe in self._parts:
            inputs = region.centre.numel()
            formula = unsafe.formula(inputs, outputs)
            if formula.count() > MOST:
                raise ArgumentError(
                    f"the property has {formula.count()} alternatives once and and or are "
                    f"multiplied out; {MOST} is the most"
                )
            clauses = [Clause.of(_single(one), inputs, outputs) for one in formula.conjunctions()]
            found.append(Case(region, tuple(clauses)))
        return tuple(found)

    def violated(self, x: Tensor, y: Tensor, tolerance: float = 0.0) -> Tensor:
        """Whether outputs y (batch, *outputs) at inputs x (batch, *inputs) are violations, both
        flat or not: (batch,). tolerance: by how much an inequality, or an end of the region, may
        be missed."""
        flat_x, flat_y = x.reshape(len(x), -1), y.reshape(len(y), -1)
        found = torch.zeros(len(x), dtype=torch.bool, device=y.device)
        for case in self.cases(flat_y.shape[1]):
            inside = case.region.contains(flat_x, tolerance).to(y.device)
            for clause in case.clauses:
                found |= inside & clause.holds(flat_x, flat_y, tolerance)
        return found

    def __str__(self) -> str:
        """What must hold, a line for each of the first cases."""
        lines = [unsafe.said(region) for region, unsafe in self._parts[:SHOWN]]
        if len(self._parts) > SHOWN:
            lines.append(f"... and {len(self._parts) - SHOWN} more")
        return "\n".join(lines) or "nothing is unsafe"


def robust(
    x: Tensor | Region,
    eps: Number | None = None,
    *,
    label: int,
    lower: Number | None = None,
    upper: Number | None = None,
) -> Property:
    """The class stays: output ``label`` is larger than all others for every member of a region.

    x: the clean input, of one sample, with the radius eps of an l-infinity ball, cut to the valid
    range [lower, upper]; or a region of any kind.
    """
    if isinstance(x, Region):
        if eps is not None or lower is not None or upper is not None:
            raise ArgumentError("robust(region, label=...) takes no eps, lower or upper beside it")
        region = x
    elif eps is None:
        raise ArgumentError("robust(x, eps=..., label=...) needs a radius")
    else:
        region = Linf(x, eps, lower, upper)
    return Property.of_unsafe([(region, _Changed(int(label)))])
