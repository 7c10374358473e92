"""VNN-LIB 2: declared networks with tensors, and assertions about their elements.

    (vnnlib-version <2.0>)
    (declare-network N (declare-input X float32 [1,5]) (declare-output Y float32 [1,2]))
    (assert (<= X[0,3] 0.5))              all assertions together describe the UNSAFE set
    (assert (or (== Y[0,0] 1.0) (!= Y[0,1] (* 2.0 X[0,0]))))

The ``vnnlib`` package parses them. The flat input is made of the declared inputs, one behind the
other in the order of their declaration, each with its last index fastest; the flat output alike.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np

from boundlab.errors import ArgumentError
from boundlab.specs.boxes import over_boxes
from boundlab.specs.formula import COMPARISONS, And, Formula, Linear, Or
from boundlab.specs.property import Property
from boundlab.specs.text import DEEPEST, NUMBER, read_number

VERSION = re.compile(r"\(\s*vnnlib-version\s*(?:<([^>]*)>)?")
"""By which files of version 2 are told."""
BRACKETS = re.compile(r"\[[^\]]*\]?")
INDICES = re.compile(r"\[\s*(?:\d{1,9}\s*(?:,\s*\d{1,9}\s*)*)?\]")
WORDS = re.compile(rf'\[[^\]]*\]|"[^"]*"|(?<=[\s()]){NUMBER.pattern}(?=[\s()])')
"""Indices, names of nodes, and numbers that stand by themselves."""
PLAIN = re.compile(r"-?\d+\.\d+")
"""The notation of numbers that the package takes for every type here."""
TYPES = {
    "Real": "real",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "BF16": "bfloat16",
}
"""Element types by the name that the package has for them."""
SIGNS = {
    "LessEqual": "<=",
    "GreaterEqual": ">=",
    "LessThan": "<",
    "GreaterThan": ">",
    "Equal": "=",
}
Query = Any
"""What the package returns, and the nodes in it."""


def parse(text: str) -> Property:
    """The property of one network that a VNN-LIB 2 text without comments describes."""
    query = _query(text)
    if len(query.networks) > 1:
        names = ", ".join(map(_network, query.networks))
        raise ArgumentError(
            f"speaks of several networks: {names}; a property is about one (boundlab verify takes "
            "them with --network NAME=FILE)"
        )
    return _asked(query, len(text)).prop


@dataclass(frozen=True)
class Declared:
    """A network as a query declares it. equal_to: another that it is, nothing if it is its own."""

    name: str
    equal_to: str
    inputs: tuple[Declaration, ...]
    outputs: tuple[Declaration, ...]


@dataclass(frozen=True)
class Declaration:
    """A declared tensor. type: such as ``float32``, or ``real``."""

    name: str
    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Question:
    """What a text asks of networks side by side.

    prop: over a flat input in which what the text asserts to be equal stands once; places: where
    each element of all declared inputs, one behind the other, stands in it. The flat output is made
    of all declared outputs.
    """

    networks: tuple[Declared, ...]
    prop: Property
    places: tuple[int, ...]


def read_question(text: str) -> Question:
    """What a VNN-LIB 2 text without comments asks of one network or several."""
    return _asked(_query(text), len(text))


def _asked(query: Query, length: int) -> Question:
    """length: of the text."""
    for network in query.networks:
        if network.hidden:
            raise ArgumentError(
                f"declares {network.hidden[0].name} inside of the network (declare-hidden); a "
                "property is about inputs and outputs"
            )
    outputs = _Flat(tuple(_all(query, "outputs", Linear.output)))
    full = _Flat(tuple(_all(query, "inputs", Linear.input)))
    if full.size > length:
        raise ArgumentError(f"not all of the {full.size} inputs can have bounds in this text")
    places = list(range(full.size))
    if len(query.networks) > 1:
        places = _places(query, full)
    inputs = _Flat(tuple(_all(query, "inputs", lambda place: Linear.input(places[place]))))
    reader = _Reader({one.name: one for one in (*inputs.tensors, *outputs.tensors)})
    formulas = [reader.assertion(*numbered) for numbered in enumerate(query.assertions, 1)]
    name = lambda place: full.name(places.index(place))
    prop = over_boxes(And(tuple(formulas)), max(places) + 1, outputs.size, name)
    networks = tuple(map(_declared, query.networks))
    return Question(networks, prop, tuple(places))


def _places(query: Query, full: _Flat) -> list[int]:
    """Where each element of all inputs stands if those stand once that are asserted to be equal:
    those of networks that get the same input."""
    root = list(range(full.size))

    def find(place: int) -> int:
        while root[place] != place:
            place = root[place]
        return place

    first = {one.name: one for one in full.tensors}
    waiting = [assertion.expr for assertion in query.assertions]
    while waiting:
        tree = waiting.pop()
        kind = type(tree).__name__
        if kind == "And":
            waiting += tree.args
        elif kind == "Equal" and all(
            type(side).__name__ == "Var" and side.name in first for side in (tree.lhs, tree.rhs)
        ):
            one, other = (first[side.name].place(side.indices) for side in (tree.lhs, tree.rhs))
            low, high = sorted((find(one), find(other)))
            root[high] = low
    number = {place: k for k, place in enumerate(sorted({find(k) for k in range(full.size)}))}
    return [number[find(place)] for place in range(full.size)]


# -- before and by the package ---------------------------------------------------------------------


def _query(text: str) -> Query:
    """What the package makes of a text."""
    try:
        import vnnlib  # an extra
    except ImportError:
        raise ArgumentError(
            "this is VNN-LIB 2, which the package vnnlib reads: pip install 'boundlab[vnnlib]'"
        ) from None
    _check(text)
    try:
        return vnnlib.parse_query_string(WORDS.sub(_plain, text))
    except (vnnlib.VNNLibException, LookupError, ValueError, RuntimeError, MemoryError) as error:
        raise ArgumentError(f"is no VNN-LIB 2: {_reason(error)}") from None


def _check(text: str) -> None:
    """Refuse what the package would crash on, or read as something else."""
    version = VERSION.search(text)
    if version is not None and version[1] not in (None, "2.0"):
        raise ArgumentError(f"is of version {version[1][:40]}; 1 and 2.0 are read")
    letters = np.frombuffer(text.encode(), dtype=np.uint8)
    steps = (letters == ord("(")).astype(np.int32) - (letters == ord(")"))
    if steps.cumsum().max(initial=0) > DEEPEST:
        raise ArgumentError(f"expressions are nested more than {DEEPEST} deep")
    for found in BRACKETS.finditer(text):
        if INDICES.fullmatch(found[0]) is None:
            raise ArgumentError(
                f"line {_line(found)}: {found[0][:40]} must hold whole numbers below 10^9"
            )


def _plain(found: re.Match[str]) -> str:
    """A number in the notation of the package; other words as they are."""
    word = found[0]
    if word[0] in '["' or PLAIN.fullmatch(word):
        return word
    try:
        value = read_number(word)
    except ArgumentError as error:
        raise ArgumentError(f"line {_line(found)}: {error}") from None
    digits = format(Decimal(repr(value)), "f")
    return digits if "." in digits else digits + ".0"


def _line(found: re.Match[str]) -> int:
    return found.string.count("\n", 0, found.start()) + 1


def _reason(error: Exception) -> str:
    """What the package says, in a line."""
    text = str(error)
    try:
        errors = json.loads(text)["errors"]
    except ValueError:
        return f"{type(error).__name__}: {text[:300]}"
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"line {first['line']}: {first['message']}, {first['hint']}{more}"[:300]


# -- declarations ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tensor:
    """A declared tensor; first: where its elements begin in the flat value; make: from a place in
    the flat value to the term."""

    name: str
    shape: tuple[int, ...]
    first: int
    make: Callable[[int], Linear]

    @property
    def end(self) -> int:
        return self.first + math.prod(self.shape)

    def place(self, indices: Sequence[int]) -> int:
        """Where an element stands in the flat value."""
        place = 0
        for index, size in zip(indices, self.shape, strict=True):
            place = place * size + index
        return self.first + place

    def element(self, indices: Sequence[int]) -> Linear:
        return self.make(self.place(indices))


@dataclass(frozen=True)
class _Flat:
    """The tensors of which the flat input, or output, is made."""

    tensors: tuple[_Tensor, ...]

    @property
    def size(self) -> int:
        return self.tensors[-1].end

    def name(self, place: int) -> str:
        """What the file calls an element of the flat value."""
        tensor = next(one for one in self.tensors if place < one.end)
        indices = np.unravel_index(place - tensor.first, tensor.shape)
        return f"{tensor.name}[{','.join(map(str, indices))}]"


def _declared(network: Query) -> Declared:
    inputs, outputs = (
        tuple(Declaration(one.name, TYPES[one.dtype.name], tuple(one.shape)) for one in tensors)
        for tensors in (network.inputs, network.outputs)
    )
    return Declared(network.name, network.equal_to, inputs, outputs)


def _all(query: Query, kind: str, make: Callable[[int], Linear]) -> Iterator[_Tensor]:
    """The inputs of all networks, one behind the other, or their outputs."""
    first = 0
    for network in query.networks:
        definitions = {"inputs": network.inputs, "outputs": network.outputs}[kind]
        for tensor in _tensors(definitions, first, make):
            first = tensor.end
            yield tensor


def _network(network: Query) -> str:
    relations = {"equal-to": network.equal_to, "isomorphic-to": network.isometric_to}
    known = [f" {relation} {other}" for relation, other in relations.items() if other]
    return network.name + "".join(known)


def _tensors(
    definitions: Sequence[Query], first: int, make: Callable[[int], Linear]
) -> Iterator[_Tensor]:
    """The tensors of one network; first: where the first of them begins."""
    for one in definitions:
        text = str(one).strip()
        if one.dtype.name not in TYPES:
            raise ArgumentError(
                f"{text} is of a type that is not known here: real, float16, float32, float64 and "
                "bfloat16 are"
            )
        if one.onnx_name is not None and len(definitions) > 1:
            raise ArgumentError(
                f"{text} names a node of the network; of several, their order is what counts here"
            )
        tensor = _Tensor(one.name, tuple(one.shape), first, make)
        first = tensor.end
        yield tensor


# -- assertions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reader:
    """Reads assertions about tensors, by their names."""

    tensors: dict[str, _Tensor]

    def assertion(self, number: int, assertion: Query) -> Formula:
        try:
            return self.formula(assertion.expr)
        except ArgumentError as error:
            text = str(assertion).strip()
            if len(text) > 120:
                text = text[:120] + " ..."
            raise ArgumentError(f"assertion {number}, {text}: {error}") from None

    def formula(self, tree: Query) -> Formula:
        match type(tree).__name__:
            case "And":
                return And(tuple(map(self.formula, tree.args)))
            case "Or":
                return Or(tuple(map(self.formula, tree.args)))
            case "NotEqual":
                return ~COMPARISONS["="](self.term(tree.lhs), self.term(tree.rhs))
            case kind if kind in SIGNS:
                return COMPARISONS[SIGNS[kind]](self.term(tree.lhs), self.term(tree.rhs))
        raise ArgumentError(f"{tree} ({type(tree).__name__}) is no formula that is known here")

    def term(self, tree: Query) -> Linear:
        match type(tree).__name__:
            case "Var":
                return self.tensors[tree.name].element(tree.indices)
            case "Float" | "Int":
                return Linear.number(read_number(tree.lexeme))
            case "Negate":
                return -self.term(tree.expr)
            case "Plus":
                return reduce(lambda a, b: a + b, self.terms(tree.args))
            case "Minus":
                return reduce(lambda a, b: a - b, self.terms((tree.head, *tree.rest)))
            case "Multiply":
                return reduce(lambda a, b: a * b, self.terms(tree.args))
        raise ArgumentError(f"{tree} ({type(tree).__name__}) is no term that is known here")

    def terms(self, nodes: Sequence[Query]) -> Iterator[Linear]:
        return map(self.term, nodes)
