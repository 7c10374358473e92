"""VNN-LIB texts evaluated by something that shares nothing with the parser, and random formulas
written as texts of both versions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

SIGNS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq}
SIGNS |= {"==": operator.eq, "!=": operator.ne}
TERMS = {"+": operator.add, "*": operator.mul, "/": operator.truediv, "-": operator.sub}


class Judge:
    """A VNN-LIB 1 text as nested lists, evaluated at many points at once."""

    def __init__(self, text: str) -> None:
        plain = re.sub(r";.*", "", text)
        python = re.sub(r"[^\s()]+", lambda m: repr(m[0]) + ",", plain)
        commands = eval("[" + python.replace("(", "[").replace(")", "],") + "]")
        declared = [c[1] for c in commands if c[0] == "declare-const"]
        self.inputs = sum(name[0] == "X" for name in declared)
        self.outputs = len(declared) - self.inputs
        self.assertions = [c[1] for c in commands if c[0] == "assert"]

    def holds(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Whether all assertions hold at inputs (points, in) and outputs (points, out)."""
        named = {"X": x.T, "Y": y.T}

        def lookup(word: str) -> Any:
            if word[0] in named:
                return named[word[0]][int(word[2:])]
            return float(word)

        found = np.ones(len(x), dtype=bool)
        for assertion in self.assertions:
            found &= value_of(assertion, lookup)
        return found


def value_of(expression: Any, lookup: Callable[[Any], Any]) -> Any:
    """The value of nested lists whose words are looked up."""
    if not isinstance(expression, list):
        return lookup(expression)
    head, *parts = expression
    found = [value_of(part, lookup) for part in parts]
    if head == "and":
        return reduce(np.logical_and, found)
    if head == "or":
        return reduce(np.logical_or, found)
    if head == "not":
        return np.logical_not(found[0])
    if head == "=>":
        return np.logical_or(np.logical_not(found[0]), found[1])
    if head in SIGNS:
        return reduce(np.logical_and, [SIGNS[head](a, b) for a, b in pairwise(found)])
    return -found[0] if head == "-" and len(found) == 1 else reduce(TERMS[head], found)


# -- random formulas -------------------------------------------------------------------------------

EIGHTHS = st.integers(-24, 24).map(lambda n: n / 8)
"""Numbers of which sums and products are exact."""
NOTATIONS: list[Callable[[float], str]] = [
    repr,
    lambda c: f"{c:.3e}",
    lambda c: f"{c:+.3f}",
    lambda c: f"{c * 1000:g}E-3",
    lambda c: repr(c).replace("0.", ".", 1) if abs(c) < 1 else f"{c:.4f}",
    lambda c: repr(c).removesuffix("0"),
    lambda c: f"{c:g}",
]


@dataclass(frozen=True)
class Number:
    """A number in one of many notations."""

    value: float
    text: str


numbers = st.builds(
    lambda value, write: Number(value, write(value)), EIGHTHS, st.sampled_from(NOTATIONS)
)
variables = st.tuples(st.sampled_from("XY"), st.integers(0, 2)).map(lambda v: f"{v[0]}_{v[1]}")


def _more_terms(terms: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(terms, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from("+-"), many).map(lambda t: [t[0], *t[1]]),
        st.tuples(numbers, terms, st.booleans()).map(
            lambda t: ["*", t[0], t[1]] if t[2] else ["*", t[1], t[0]]
        ),
    )


terms = st.recursive(st.one_of(numbers, variables), _more_terms, max_leaves=4)
comparisons = st.tuples(st.sampled_from(["<=", ">=", "<", ">", "==", "!="]), terms, terms).map(list)


def _more_formulas(formulas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(formulas, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), many).map(lambda t: [t[0], *t[1]]),
        formulas.map(lambda f: ["not", f]),
    )


formulas = st.recursive(comparisons, _more_formulas, max_leaves=6)
"""Formulas over three inputs and three outputs, as nested lists."""


def judged(formula: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A random formula at inputs (points, 3) and outputs (points, 3)."""

    def lookup(word: Number | str) -> Any:
        if isinstance(word, Number):
            return word.value
        return {"X": x, "Y": y}[word[0]][:, int(word[2:])]

    return np.broadcast_to(value_of(formula, lookup), len(x))


def first_version(formula: Any) -> str:
    """A formula as VNN-LIB 1 writes it."""
    match formula:
        case Number():
            return formula.text
        case str():
            return formula
        case ["!=", a, b]:
            return f"(not (= {first_version(a)} {first_version(b)}))"
        case ["==", a, b]:
            return f"(= {first_version(a)} {first_version(b)})"
    head, *parts = formula
    return f"({head} {' '.join(map(first_version, parts))})"


OPPOSITE = {"<=": ">", ">=": "<", "<": ">=", ">": "<=", "==": "!=", "!=": "==", "and": "or"}
OPPOSITE |= {"or": "and"}
ELEMENTS = {"X_0": "A[0,0]", "X_1": "A[0,1]", "X_2": "B", "Y_0": "Y[0]", "Y_1": "Y[1]"}
ELEMENTS |= {"Y_2": "Z[0,0,0]"}
"""What the texts of version 2 call the elements."""


def second_version(formula: Any, negated: bool = False) -> str:
    """A formula as VNN-LIB 2 writes it, which has no not."""
    match formula:
        case Number():
            return formula.text
        case str():
            return ELEMENTS[formula]
        case ["not", part]:
            return second_version(part, not negated)
    head, *parts = formula
    inside = negated and head in ("and", "or")
    texts = [second_version(part, inside) for part in parts]
    return f"({OPPOSITE[head] if negated else head} {' '.join(texts)})"
