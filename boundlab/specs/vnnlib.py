"""VNN-LIB 1: a property as a file of s-expressions.

    (declare-const X_0 Real)              inputs X_i and outputs Y_i, in the order of the flat value
    (assert (<= X_0 0.5))                 all assertions together describe the UNSAFE set:
    (assert (or (and (<= Y_0 Y_1)) ...))  the property holds if nothing satisfies them

Assertions are and, or, not and => of comparisons of linear terms, to any depth. Bounds of single
inputs become boxes; whatever is not expressible is an error that names the assertion.
"""

from __future__ import annotations

import gzip
import itertools
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from boundlab.errors import ArgumentError
from boundlab.regions import Box
from boundlab.specs.formula import MOST, And, Atom, Formula, Inequality, InputBounds, Linear, Or
from boundlab.specs.property import Property, Unsafe

LARGEST = 1 << 29
"""Bytes that a file may have when it is unpacked."""
DEEPEST = 200
"""How deep expressions may be nested."""
TOKENS = re.compile(r"[()]|[^\s()]+")
COMMENT = re.compile(r";[^\n]*")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
VARIABLE = re.compile(r"([XY])_(\d+)")
BOUND = r"\((?:<=|>=) X_\d+ [-+.\deE]+\)"
BOUNDS = re.compile(rf"{BOUND}(?:\s+{BOUND})+")
"""Bounds of inputs that stand one behind the other: files of megabytes are made of these, so they
are read by arrays."""
MARK = "\0"
"""Begins the word that stands for them until they are read."""
SILENT = {"set-logic", "set-info", "set-option", "check-sat", "get-model", "exit"}
"""Commands of SMT-LIB that say nothing about the property."""

Expression = str | list["Expression"]
"""A word, or a list of expressions."""


def load_vnnlib(path: str | Path) -> Property:
    """Read a property from a VNN-LIB file, packed (``.gz``) or not."""
    path = Path(path)
    try:
        return parse_vnnlib(_read(path))
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


def _read(path: Path) -> str:
    """The text of a file, of at most so many bytes when it is unpacked."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ArgumentError(f"cannot be read: {error}") from None
    if len(content) > LARGEST:
        raise ArgumentError(f"has more than {LARGEST >> 20} MiB when it is unpacked")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise ArgumentError("is no text of ASCII characters") from None


def parse_vnnlib(text: str) -> Property:
    """The property that a VNN-LIB text describes."""
    if MARK in text:
        raise ArgumentError("there is a zero byte in the text")
    runs: list[str] = []

    def marked(found: re.Match[str]) -> str:
        runs.append(found[0])
        return f" {MARK}{len(runs) - 1} "

    declared: dict[str, set[int]] = {"X": set(), "Y": set()}
    assertions = []
    for number, command in enumerate(_expressions(BOUNDS.sub(marked, COMMENT.sub("", text))), 1):
        match command:
            case ["declare-const", str(name), "Real"] | ["declare-fun", str(name), [], "Real"]:
                kind, index = _variable(name)
                if index in declared[kind]:
                    raise ArgumentError(f"{name} is declared twice")
                declared[kind].add(index)
            case ["assert", expression]:
                reader = _Reader(declared, runs, number, expression)
                assertions.append(reader.formula(expression))
            case [str(word), *_] if word in SILENT:
                pass
            case _:
                raise ArgumentError(f"command {number} is not known: {_shown(command)}")
    inputs, outputs = _count(declared, "X"), _count(declared, "Y")
    return _property(And(tuple(assertions)), inputs, outputs)


def _variable(name: str) -> tuple[str, int]:
    found = VARIABLE.fullmatch(name)
    if found is None:
        raise ArgumentError(f"variables are called X_0, X_1, ... and Y_0, Y_1, ...; not {name}")
    return found[1], int(found[2])


def _count(declared: dict[str, set[int]], kind: str) -> int:
    """How many inputs or outputs there are, which must be numbered without gaps."""
    found = declared[kind]
    if not found:
        raise ArgumentError(f"no variable {kind}_0 is declared")
    missing = next(i for i in range(len(found) + 1) if i not in found)
    if missing < len(found):
        raise ArgumentError(f"{kind}_{missing} is not declared, though {kind}_{max(found)} is")
    return len(found)


def _expressions(text: str) -> Iterator[list[Expression]]:
    """The top-level lists of a text."""
    stack: list[list[Expression]] = []
    for token in TOKENS.findall(text):
        if token == "(":
            if len(stack) >= DEEPEST:
                raise ArgumentError(f"expressions are nested more than {DEEPEST} deep")
            stack.append([])
        elif token != ")":
            if not stack:
                raise ArgumentError(f"'{token[:40]}' stands outside of all brackets")
            stack[-1].append(token)
        elif not stack:
            raise ArgumentError("a bracket is closed that was not opened")
        else:
            done = stack.pop()
            if stack:
                stack[-1].append(done)
            else:
                yield done
    if stack:
        raise ArgumentError(f"the text ends inside of {_shown(stack[0])}")


def _shown(expression: Expression) -> str:
    """An expression as it was written, shortened."""
    if isinstance(expression, str):
        return "several bounds" if expression.startswith(MARK) else expression[:80]
    text = "(" + " ".join(_shown(part) for part in expression[:6])
    return (text if len(text) < 120 else text[:120] + " ...") + ")"


class _Reader:
    """Reads one assertion. declared: the variables that there are; runs: the texts of bounds that
    words stand for."""

    def __init__(
        self,
        declared: dict[str, set[int]],
        runs: Sequence[str],
        number: int,
        expression: Expression,
    ) -> None:
        self.declared = declared
        self.runs = runs
        self.number = number
        self.assertion = expression

    def refuse(self, why: str) -> ArgumentError:
        return ArgumentError(f"command {self.number}, (assert {_shown(self.assertion)}): {why}")

    def formula(self, expression: Expression) -> Formula:
        match expression:
            case "true":
                return And(())
            case "false":
                return Or(())
            case ["and", *parts]:
                return And(tuple(self.parts(parts)))
            case ["or", *parts]:
                return Or(tuple(self.singles(parts)))
            case ["not", part]:
                return ~self.formula(part)
            case ["=>", *parts] if len(sides := self.singles(parts)) == 2:
                return ~sides[0] | sides[1]
            case [str(sign), first, second] if sign in COMPARISONS:
                return self.comparison(sign, first, second)
            case [str(sign), *parts] if sign in COMPARISONS and len(parts) > 2:
                pairs = itertools.pairwise(parts)
                return And(tuple(self.comparison(sign, a, b) for a, b in pairs))
        raise self.refuse(
            f"{_shown(expression)} is neither and, or, not, => nor a comparison by <=, >=, <, >, ="
        )

    def parts(self, expressions: Sequence[Expression]) -> Iterator[Formula]:
        """The formulas of the parts of an and or an or."""
        for expression in expressions:
            if isinstance(expression, str) and expression.startswith(MARK):
                yield self.bounds(self.runs[int(expression[1:])])
            else:
                yield self.formula(expression)

    def singles(self, expressions: Sequence[Expression]) -> list[Formula]:
        """The same, bounds of inputs one by one: where they are not a conjunction."""
        return list(itertools.chain.from_iterable(map(_singles, self.parts(expressions))))

    def bounds(self, text: str) -> InputBounds:
        """Bounds of inputs, one behind the other."""
        words = text.replace("(", " ").replace(")", " ").split()
        index = np.array([word[2:] for word in words[1::3]], dtype=np.int64)
        for word in words[2::3]:
            if NUMBER.fullmatch(word) is None:
                raise self.refuse(f"'{word[:40]}' is neither a number nor a variable")
        end = np.array(words[2::3], dtype=np.float64)
        if not np.isfinite(end).all():
            raise self.refuse("a bound is beyond double precision")
        for missing in set(index.tolist()) - self.declared["X"]:
            raise self.refuse(f"X_{missing} is not declared")
        return InputBounds(index, np.array(words[0::3]) == "<=", end)

    def comparison(self, sign: str, first: Expression, second: Expression) -> Formula:
        return COMPARISONS[sign](self.term(first), self.term(second))

    def term(self, expression: Expression) -> Linear:
        if isinstance(expression, str):
            return self.word(expression)
        try:
            match expression:
                case ["+", _, *_]:
                    return _folded(self.terms(expression), lambda a, b: a + b)
                case ["-", one]:
                    return -self.term(one)
                case ["-", _, *_]:
                    return _folded(self.terms(expression), lambda a, b: a - b)
                case ["*", _, *_]:
                    return _folded(self.terms(expression), lambda a, b: a * b)
                case ["/", _, _, *_]:
                    return _folded(self.terms(expression), lambda a, b: a / b)
        except ArgumentError as error:
            if str(error).startswith("command"):
                raise
            raise self.refuse(str(error)) from None
        raise self.refuse(
            f"{_shown(expression)} is no linear term: +, -, *, / of numbers and variables"
        )

    def terms(self, expression: list[Expression]) -> list[Linear]:
        return [self.term(part) for part in expression[1:]]

    def word(self, word: str) -> Linear:
        """A variable or a number."""
        found = VARIABLE.fullmatch(word)
        if found is not None:
            kind, index = found[1], int(found[2])
            if index not in self.declared[kind]:
                raise self.refuse(f"{word} is not declared")
            return Linear.input(index) if kind == "X" else Linear.output(index)
        if NUMBER.fullmatch(word) is None:
            raise self.refuse(f"'{word[:40]}' is neither a number nor a variable")
        value = float(word)
        if not math.isfinite(value):
            raise self.refuse(f"{word[:40]} is beyond double precision")
        return Linear.number(value)


def _singles(formula: Formula) -> Iterator[Formula]:
    """Bounds of inputs one by one; any other formula as it is."""
    if isinstance(formula, InputBounds):
        yield from formula.inequalities()
    else:
        yield formula


def _folded(terms: Sequence[Linear], combine: Callable[[Linear, Linear], Linear]) -> Linear:
    found = terms[0]
    for term in terms[1:]:
        found = combine(found, term)
    return found


COMPARISONS: dict[str, Callable[[Linear, Linear], Formula]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "=": lambda a, b: (a <= b) & (a >= b),
}


# -- from a formula to boxes -----------------------------------------------------------------------


def _property(formula: And, inputs: int, outputs: int) -> Property:
    """The property whose unsafe set is where a formula holds: a box for each set of bounds of
    single inputs, with what else is asked there."""
    if formula.count() > MOST:
        raise ArgumentError(
            f"it has {formula.count()} alternatives once and and or are multiplied out; {MOST} is "
            "the most"
        )
    shared = [part for part in formula.parts if isinstance(part, Atom)]
    others = And(tuple(part for part in formula.parts if not isinstance(part, Atom)))
    start = _Bounds(np.full(inputs, -np.inf), np.full(inputs, np.inf))
    outside = start.tightened(shared)
    cases: dict[bytes, tuple[_Bounds, list[tuple[Inequality, ...]]]] = {}
    for conjunction in others.conjunctions():
        bounds = start.copied()
        rest = (*outside, *bounds.tightened(conjunction))
        if bounds.is_empty:
            continue
        cases.setdefault(bounds.key, (bounds, []))[1].append(rest)
    parts = [(bounds.box(), _unsafe(clauses, outputs)) for bounds, clauses in cases.values()]
    return Property.of_unsafe(parts)


def _unsafe(clauses: list[tuple[Inequality, ...]], declared: int) -> Unsafe:
    formula = Or(tuple(And(clause) for clause in clauses))

    def unsafe(_: int, outputs: int) -> Formula:
        if outputs != declared:
            raise ArgumentError(
                f"the property speaks of {declared} outputs, and the model has {outputs}"
            )
        return formula

    return unsafe


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

    @property
    def is_empty(self) -> bool:
        return bool((self.lower > self.upper).any())

    @property
    def key(self) -> bytes:
        return self.lower.tobytes() + self.upper.tobytes()

    def box(self) -> Box:
        """The box (1, inputs); every input must be bounded."""
        for name, end in (("lower", self.lower), ("upper", self.upper)):
            if not np.isfinite(end).all():
                index = int(np.flatnonzero(~np.isfinite(end))[0])
                raise ArgumentError(f"X_{index} has no {name} bound")
        return Box(torch.from_numpy(self.lower)[None], torch.from_numpy(self.upper)[None])


def _divided(constant: float, coefficient: float, outward: float) -> float:
    """-constant / coefficient, rounded outward where it is rounded at all."""
    end = -constant / coefficient
    if abs(coefficient) == 1:
        return end
    return math.nextafter(end, outward)
