"""Random formulas, written as VNN-LIB 1, as VNN-LIB 2 and as a condition: one verdict."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import boundlab as bl
from boundlab.specs.formula import COMPARISONS, Linear
from boundlab.specs.property import Symbols
from boundlab.specs.vnnlib import parse_vnnlib
from tests.helpers.vnnlib import Number, first_version, formulas, judged, second_version

NAMES = [f"{kind}_{i}" for kind in "XY" for i in range(3)]
BOX = [
    [sign, f"X_{i}", Number(end, str(end))]
    for i in range(3)
    for sign, end in ((">=", -2.0), ("<=", 1.5))
]
FIRST = "".join(f"(declare-const {name} Real)\n" for name in NAMES)
SECOND = """(vnnlib-version <2.0>)
(declare-network N
    (declare-input A real [1, 2]) (declare-input B real [])
    (declare-output Y real [2]) (declare-output Z real [1,1,1]))
"""


def points(seed: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs (count, 3), of eighths, so that ends and equalities are met often."""
    generator = np.random.default_rng(seed)
    x = generator.integers(-20, 17, (count, 3)) / 8
    return x, generator.integers(-16, 17, (count, 3)) / 8


def verdicts(prop: bl.Property, x: np.ndarray, y: np.ndarray) -> list[bool]:
    found: list[bool] = prop.violated(torch.from_numpy(x), torch.from_numpy(y)).tolist()
    return found


@settings(deadline=None, max_examples=200)
@given(st.lists(formulas, min_size=1, max_size=3), st.integers(0, 1000))
def test_texts_of_version_1(asserted: list[Any], seed: int) -> None:
    every = [*BOX, *asserted]
    text = FIRST + "".join(f"(assert {first_version(one)})\n" for one in every)
    x, y = points(seed)
    assert verdicts(parse_vnnlib(text), x, y) == judged(["and", *every], x, y).tolist()


@pytest.mark.skipif(
    importlib.util.find_spec("vnnlib") is None, reason="the package vnnlib is not installed"
)
@settings(deadline=None, max_examples=200)
@given(st.lists(formulas, min_size=1, max_size=3), st.integers(0, 1000))
def test_texts_of_version_2(asserted: list[Any], seed: int) -> None:
    every = [*BOX, *asserted]
    text = SECOND + "".join(f"(assert {second_version(one)})\n" for one in every)
    x, y = points(seed)
    assert verdicts(parse_vnnlib(text), x, y) == judged(["and", *every], x, y).tolist()


def _condition(formula: Any, y: Symbols, x: Symbols) -> Any:
    """The formula, or the term, of symbols."""
    match formula:
        case Number():
            return Linear.number(formula.value)
        case str():
            return {"X": x, "Y": y}[formula[0]][:, int(formula[2:])]
    head, *parts = formula
    found = [_condition(part, y, x) for part in parts]
    match head:
        case "not":
            return ~found[0]
        case "!=":
            return ~COMPARISONS["="](*found)
        case "==":
            return COMPARISONS["="](*found)
    if head in COMPARISONS:
        return COMPARISONS[head](*found)
    if head == "-" and len(found) == 1:
        return -found[0]
    return _folded(head, found)


def _folded(head: str, found: list[Any]) -> Any:
    result = found[0]
    for one in found[1:]:
        match head:
            case "and":
                result = result & one
            case "or":
                result = result | one
            case "+":
                result = result + one
            case "-":
                result = result - one
            case "*":
                result = result * one
    return result


@settings(deadline=None, max_examples=100)
@given(formulas, st.integers(0, 1000))
def test_conditions(formula: Any, seed: int) -> None:
    """A condition says what must hold: violations are where it does not."""
    region = bl.Box(torch.full((1, 3), -2.0), torch.full((1, 3), 1.5))
    condition = lambda y, x: _condition(formula, y, x)
    x, y = points(seed)
    inside = ((x >= -2) & (x <= 1.5)).all(1)
    expected = inside & ~judged(formula, x, y)
    prop = bl.Property(region, condition)
    assert verdicts(prop, x, y) == expected.tolist()
