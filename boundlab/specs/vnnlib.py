"""VNN-LIB 1: a property as a file of s-expressions.

    (declare-const X_0 Real)              inputs X_i and outputs Y_i, in the order of the flat value
    (assert (<= X_0 0.5))                 all assertions together describe the UNSAFE set:
    (assert (or (and (<= Y_0 Y_1)) ...))  the property holds if nothing satisfies them

Assertions are and, or, not and => of comparisons of linear terms, to any depth. Bounds of single
inputs become boxes; whatever is not expressible is an error that names the assertion.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from boundlab.errors import ArgumentError
from boundlab.specs import vnnlib2
from boundlab.specs.boxes import over_boxes
from boundlab.specs.formula import COMPARISONS, And, Formula, InputBounds, Linear, Or
from boundlab.specs.property import Property
from boundlab.specs.text import DEEPEST, NUMBER, read_number, read_text, uncommented

TOKENS = re.compile(r"[()]|[^\s()]+")
VARIABLE = re.compile(r"([XY])_(\d{1,9})")
BOUND = r"\((?:<=|>=) X_\d{1,9} [-+.\deE]+\)"
ASSERTED = rf"\(assert {BOUND}\)"
BOUNDS = re.compile(rf"{BOUND}(?:\s+{BOUND})+|{ASSERTED}(?:\s+{ASSERTED})+")
"""Bounds of inputs that stand one behind the other, or assertions of such: files of megabytes are
made of these, so they are read by arrays."""
MARK = "\0"
"""Begins the word that stands for them until they are read."""
SILENT = {"set-logic", "set-info", "set-option", "check-sat", "get-model", "exit"}
"""Commands of SMT-LIB that say nothing about the property."""

Expression = str | list["Expression"]
"""A word, or a list of expressions."""


def load_vnnlib(path: str | Path) -> Property:
    """Read a property from a file of VNN-LIB 1 or 2, packed (``.gz``) or not."""
    path = Path(path)
    try:
        return parse_vnnlib(read_text(path))
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


def parse_vnnlib(text: str) -> Property:
    """The property that a VNN-LIB text describes."""
    text = uncommented(text)
    if vnnlib2.VERSION.search(text):
        return vnnlib2.parse(text)
    runs: list[str] = []

    def marked(found: re.Match[str]) -> str:
        runs.append(found[0])
        word = f"{MARK}{len(runs) - 1}"
        return f" (assert (and {word})) " if found[0].startswith("(assert") else f" {word} "

    declared: dict[str, set[int]] = {"X": set(), "Y": set()}
    assertions = []
    number = 0
    for command in _expressions(BOUNDS.sub(marked, text)):
        number += _commands(command, runs)
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
    return over_boxes(And(tuple(assertions)), inputs, outputs, lambda index: f"X_{index}")


def _commands(command: list[Expression], runs: Sequence[str]) -> int:
    """How many commands of the text one is: more than 1 if it stands for a row of assertions."""
    match command:
        case ["assert", ["and", str(word)]] if word.startswith(MARK):
            return max(runs[int(word[1:])].count("(assert"), 1)
    return 1


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
        words = text.replace("(assert", " ").replace("(", " ").replace(")", " ").split()
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
        try:
            return Linear.number(read_number(word))
        except ArgumentError as error:
            raise self.refuse(str(error)) from None


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
