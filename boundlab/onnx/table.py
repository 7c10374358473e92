"""The table of ONNX operators: a row is a function of torch tensors.

    @row("Gemm")
    def gemm(a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, ...) -> Tensor

The parameters of the function are the inputs of the operator, in order, and its attributes, by
name. An attribute that became an input in a later opset is one parameter, which takes both. A
parameter that is annotated as a tensor may depend on the inputs of the network; all others (sizes,
axes, numbers) must be known when the network is loaded. An attribute that no parameter takes is
refused. Where an operator changed its meaning there is a row for each (``since``).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from boundlab.errors import ArgumentError, BoundlabError, UnsupportedOperator

Ints = tuple[int, ...]
"""Sizes, axes, pads: whole numbers that are known when the network is loaded."""
Floats = tuple[float, ...]
Operand = Tensor | float
"""A tensor; the number itself, where it is a constant without dimensions."""
Operation = Callable[..., Any]
"""From tensors and attributes to a tensor, or to a tuple of tensors."""

MOST = 1 << 30
"""Bytes that one tensor may have."""
MOST_DIMS = 64
"""How many dimensions a tensor may have: numpy has no more."""
LONGEST = 1 << 20
"""How many numbers an input of a row may have that is no tensor."""
COUNT = "n_outputs"
"""The parameter that is told how many outputs the node names."""


class TooLarge(BoundlabError):
    """A value of the network has more bytes than may be taken."""


def check_room(*sizes: int, itemsize: int = 8) -> None:
    """Refuse what would have more bytes than a tensor may have."""
    if math.prod(sizes) * itemsize > MOST:
        raise TooLarge(f"a value of shape {sizes} has more than {MOST >> 20} MiB")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a row. kind: what a constant becomes: a tensor, numbers, or a number;
    element: the type of the number or numbers."""

    name: str
    kind: str
    element: type
    required: bool
    variadic: bool = False
    by_name_only: bool = False

    def read(self, value: Tensor) -> Any:
        """What the function gets for a constant input."""
        if self.kind == "tensor":
            return value
        if self.kind == "operand":
            return value.item() if value.dim() == 0 else value
        if self.kind == "numbers":
            if value.numel() > LONGEST:
                raise TooLarge(f"{self.name} has more than {LONGEST} numbers")
            return tuple(value.reshape(-1).tolist())
        if value.numel() != 1:
            raise ArgumentError(f"{self.name} must be one number, not {tuple(value.shape)}")
        return value.reshape(()).item()

    def takes(self, value: Any) -> bool:
        """Whether an attribute has the type of the parameter."""
        if self.kind in ("tensor", "operand"):
            return isinstance(value, Tensor)
        types = (int, float) if self.element is float else (self.element,)
        if self.kind == "numbers":
            return isinstance(value, tuple) and all(isinstance(one, types) for one in value)
        return isinstance(value, types)


@dataclass(frozen=True)
class Row:
    """An operator from an opset on, until that of the next row of its name."""

    name: str
    since: int
    function: Operation

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        found = inspect.signature(self.function, eval_str=True).parameters.values()
        return tuple(
            Parameter(
                one.name,
                _kind(one.annotation),
                _element(one.annotation),
                one.default is inspect.Parameter.empty,
                one.kind is inspect.Parameter.VAR_POSITIONAL,
                one.kind is inspect.Parameter.KEYWORD_ONLY,
            )
            for one in found
            if one.name != COUNT
        )

    @cached_property
    def counts_outputs(self) -> bool:
        return COUNT in inspect.signature(self.function).parameters

    def places(self, count: int) -> list[Parameter]:
        """The parameters of so many inputs."""
        places = [one for one in self.parameters if not one.by_name_only]
        if places and places[-1].variadic:
            places += [places[-1]] * (count - len(places))
        if count > len(places):
            raise ArgumentError(f"it takes at most {len(places)} inputs, not {count}")
        return places[:count]

    def attributes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a node, checked against the parameters."""
        known = {one.name: one for one in self.parameters if not one.variadic}
        for name, value in given.items():
            shown = f"its attribute {shortened(name)} = {shortened(repr(value))}"
            if name not in known:
                raise UnsupportedOperator(f"{shown} is not known")
            if not known[name].takes(value):
                raise ArgumentError(f"{shown} has the wrong type")
        return dict(given)


def _kind(annotation: object) -> str:
    text = str(annotation)
    if annotation == Operand:
        return "operand"
    if annotation is Tensor or "Tensor" in text:
        return "tensor"
    if "tuple" in text:
        return "numbers"
    return "number"


def _element(annotation: object) -> type:
    text = str(annotation)
    return next((one for one in (str, float, int) if one.__name__ in text), object)


def shortened(text: str) -> str:
    """Text of a file as part of a message: one line that is not long."""
    text = " ".join(text.split())
    return text if len(text) <= 100 else f"{text[:100]}..."


ROWS: dict[str, list[Row]] = {}
"""The rows of every operator, oldest first."""


def row(*names: str, since: int = 1) -> Callable[[Operation], Operation]:
    """Declare the function of operators from an opset on."""

    def declare(function: Operation) -> Operation:
        for name in names:
            rows = ROWS.setdefault(name, [])
            if any(one.since == since for one in rows):
                raise ArgumentError(f"the ONNX operator {name} has a row since opset {since}")
            rows.append(Row(name, since, function))
            rows.sort(key=lambda one: one.since)
        return function

    return declare


def find_row(name: str, opset: int) -> Row:
    """The row that is in force in an opset."""
    rows = [one for one in ROWS.get(name, []) if one.since <= opset]
    if not rows:
        raise UnsupportedOperator(
            f"boundlab has no row for the ONNX operator {shortened(name)} in opset {opset}; "
            "'boundlab ops --onnx' lists those that it has"
        )
    return rows[-1]


Reference = tuple[str, int] | Operation
"""A function of the table by the name and opset of its row; any other as it is."""


def reference(function: Operation) -> Reference:
    for rows in ROWS.values():
        for one in rows:
            if one.function is function:
                return one.name, one.since
    return function


def dereference(given: Reference) -> Operation:
    if isinstance(given, tuple):
        return find_row(*given).function
    return given


def as_dtype(code: int) -> torch.dtype:
    """The torch type of a number of onnx.TensorProto.DataType."""
    if code not in DTYPES:
        raise UnsupportedOperator(f"there is no torch type for the ONNX data type {code}")
    return DTYPES[code]


DTYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    4: torch.uint16,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    12: torch.uint32,
    13: torch.uint64,
    16: torch.bfloat16,
}
"""Numbers of onnx.TensorProto.DataType."""
