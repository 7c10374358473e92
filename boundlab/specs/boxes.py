"""From the formula of an unsafe set to a property over boxes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from boundlab.errors import ArgumentError
from boundlab.regions import Box, Region
from boundlab.specs.formula import MOST, And, Atom, Formula, Inequality, InputBounds, Linear, Or
from boundlab.specs.property import Property, Unsafe

Name = Callable[[int], str]
"""What a file calls an element of the flat input."""


def over_boxes(formula: And, inputs: int, outputs: int, name: Name) -> Property:
    """The property whose unsafe set is where a formula holds: a box for each set of bounds of
    single inputs, with what else is asked there."""
    if formula.count() > MOST:
        raise ArgumentError(
            f"it has {formula.count()} alternatives once and and or are multiplied out; {MOST} is "
            "the most"
        )
    parts = list(_flat(formula))
    shared = [part for part in parts if isinstance(part, Atom)]
    others = And(tuple(part for part in parts if not isinstance(part, Atom)))
    start = _Bounds(np.full(inputs, -np.inf), np.full(inputs, np.inf))
    outside = start.tightened(shared)
    cases: dict[bytes, tuple[_Bounds, list[tuple[Inequality, ...]]]] = {}
    for conjunction in others.conjunctions():
        bounds = start.copied()
        rest = (*outside, *bounds.tightened(conjunction))
        bounds.imply(rest)
        if bounds.is_empty:
            continue
        cases.setdefault(bounds.key, (bounds, []))[1].append(rest)
    boxes = []
    for bounds, clauses in cases.values():
        stated = Or(tuple(And(clause) for clause in clauses))
        boxes.append((bounds.box(name), _Stated(stated, outputs)))
    return Property.of_unsafe(boxes)


def _flat(formula: Formula) -> Iterator[Formula]:
    """The parts of a conjunction, and those of conjunctions among them."""
    if not isinstance(formula, And):
        yield formula
        return
    for part in formula.parts:
        yield from _flat(part)


@dataclass(frozen=True)
class _Stated(Unsafe):
    """What a file states, of so many outputs."""

    stated: Formula
    outputs: int

    def formula(self, inputs: int, outputs: int) -> Formula:
        if outputs != self.outputs:
            raise ArgumentError(
                f"the property speaks of {self.outputs} outputs, and the model has {outputs}"
            )
        return self.stated

    def said(self, region: Region) -> str:
        return f"for no x in {region}: {self.stated}"


class _Bounds:
    """Bounds of the inputs: lower and upper, (inputs,) each."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self.lower = lower
        self.upper = upper

    def copied(self) -> _Bounds:
        return _Bounds(self.lower.copy(), self.upper.copy())

    def tightened(self, conjunction: Sequence[Atom]) -> list[Inequality]:
        """Tighten the bounds by the inequalities that bound a single input; returns what these do
        not say, or not exactly: strict ones, and those that had to be divided."""
        rest = []
        for one in conjunction:
            if isinstance(one, InputBounds):
                np.minimum.at(self.upper, one.index[one.upper], one.end[one.upper])
                np.maximum.at(self.lower, one.index[~one.upper], one.end[~one.upper])
                continue
            linear = one.linear
            if _is_true(one):
                continue  # such a row is never positive, and would hide how far others are from it
            if linear.outputs or len(linear.inputs) != 1:
                rest.append(one)
                continue
            ((index, coefficient),) = linear.inputs.items()
            exact = abs(coefficient) == 1
            if coefficient > 0:
                end = _divided(linear.constant, coefficient, math.inf)
                self.upper[index] = min(self.upper[index], end)
            elif coefficient < 0:
                end = _divided(linear.constant, coefficient, -math.inf)
                self.lower[index] = max(self.lower[index], end)
            if one.strict or not exact:
                rest.append(one)
        return rest

    def imply(self, conjunction: Sequence[Inequality]) -> None:
        """Bound inputs that have no bound of their own by inequalities of several inputs, such as
        X_1 <= X_0: c + sum of a_i x_i <= 0 gives a_j x_j <= -c - sum of the least a_i x_i, i not j,
        rounded outward. A bound that is found may give the next one."""
        if np.isfinite(self.lower).all() and np.isfinite(self.upper).all():
            return
        linears = [one.linear for one in conjunction if not one.linear.outputs]
        for _ in range(len(self.lower)):
            before = self.key
            for linear in linears:
                for index in linear.inputs:
                    self._imply(linear, index)
            if self.key == before:
                return

    def _imply(self, linear: Linear, index: int) -> None:
        """A bound of one input by an inequality, if that side has none."""
        own = linear.inputs[index]
        greatest, least = (self.upper, self.lower)
        side = greatest
        if own < 0:
            side = least
        if own == 0 or np.isfinite(side[index]):
            return
        parts = [Fraction(linear.constant)]
        for other, coefficient in linear.inputs.items():
            if other == index or coefficient == 0:
                continue
            end = least[other]
            if coefficient < 0:
                end = greatest[other]
            if not np.isfinite(end):
                return
            parts.append(Fraction(coefficient) * Fraction(float(end)))
        try:
            found = float(-sum(parts) / Fraction(own))
        except OverflowError:
            return
        side[index] = math.nextafter(found, math.copysign(math.inf, own))

    @property
    def is_empty(self) -> bool:
        return bool((self.lower > self.upper).any())

    @property
    def key(self) -> bytes:
        return self.lower.tobytes() + self.upper.tobytes()

    def box(self, name: Name) -> Box:
        """The box (1, inputs); every input must be bounded."""
        for side, end in (("lower", self.lower), ("upper", self.upper)):
            if not np.isfinite(end).all():
                index = int(np.flatnonzero(~np.isfinite(end))[0])
                raise ArgumentError(f"{name(index)} has no {side} bound")
        return Box(torch.from_numpy(self.lower)[None], torch.from_numpy(self.upper)[None])


def _is_true(one: Inequality) -> bool:
    """Whether an inequality speaks of nothing, and holds."""
    linear = one.linear
    if any(linear.inputs.values()) or any(linear.outputs.values()):
        return False
    return linear.constant < 0 or (linear.constant == 0 and not one.strict)


def _divided(constant: float, coefficient: float, outward: float) -> float:
    """-constant / coefficient, rounded outward where it is rounded at all."""
    end = -constant / coefficient
    if abs(coefficient) == 1:
        return end
    return math.nextafter(end, outward)
