"""From an ONNX graph to steps: what does not depend on the inputs is computed here, once.

Shapes count as constants, those of a batch of one sample: a network is read for one sample, and
:mod:`boundlab.onnx.batching` frees the batch afterwards. The sizes of all values are found on
torch's meta device first, so that nothing is computed that would not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from boundlab.compat.private import TorchDispatchMode
from boundlab.errors import ArgumentError, BoundlabError, UnsupportedOperator
from boundlab.onnx.network import Network, Ref, Step, Value
from boundlab.onnx.ordering import in_order, title, with_own_names
from boundlab.onnx.reading import DOMAINS, import_onnx, read_attribute, read_tensor
from boundlab.onnx.rows import constants as shapes_of
from boundlab.onnx.table import (
    COUNT,
    MOST_DIMS,
    Parameter,
    Row,
    TooLarge,
    as_dtype,
    check_room,
    find_row,
    shortened,
)

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

DEEPEST = 20
"""How deep graphs may be nested in branches."""
MOST_IN_ALL = 1 << 32
"""Bytes that constants and the values of one sample may have together."""
SHAPES = (shapes_of.shape, shapes_of.size)
"""What is known of a value that depends on the inputs."""


def fold(
    graph: GraphProto, opset: int, folder: Path, shapes: Mapping[str, Sequence[int]]
) -> Network:
    """Read a graph. shapes: of inputs whose free sizes are not those of a batch."""
    if graph.sparse_initializer:
        raise UnsupportedOperator("sparse initialisers are not supported")
    if not graph.output:
        raise ArgumentError("the graph has no outputs")
    held = {one.name for one in graph.initializer}
    inputs = tuple(_input(one, shapes) for one in graph.input if one.name not in held)
    unknown = set(shapes) - {one.name for one in inputs}
    if unknown:
        raise ArgumentError(f"there is no input {min(unknown)!r}")
    folding = _Folding(opset, folder, Network(inputs, tuple(one.name for one in graph.output)))
    for proto in graph.initializer:
        value = read_tensor(proto, folder)
        folding.define(proto.name, value)
        if value.is_floating_point():
            folding.found.trainable.add(proto.name)
    for one in inputs:
        folding.define(one.name, _empty(one))
    for node in in_order(graph.node):
        folding.add(node)
    return folding.result()


def _input(proto: Any, shapes: Mapping[str, Sequence[int]]) -> Value:
    kind = proto.type.tensor_type
    if not proto.type.HasField("tensor_type") or not kind.elem_type:
        raise UnsupportedOperator(f"the input {proto.name!r} is no tensor")
    sizes = [_declared(proto.name, dim) for dim in kind.shape.dim]
    free = None if kind.HasField("shape") else "its shape"
    if proto.name in shapes:
        sizes, free = _given(proto.name, sizes, shapes[proto.name]), None
    if None in sizes[1:]:
        free = f"the size of dimension {sizes.index(None, 1)}"
    if free:
        raise ArgumentError(
            f"the input {proto.name!r} leaves {free} free: give all sizes, "
            f"load_onnx(path, shapes={{{proto.name!r}: (1, ...)}})"
        )
    return Value(proto.name, as_dtype(kind.elem_type), tuple(sizes))


def _declared(name: str, dim: Any) -> int | None:
    """The size of a dimension; None if it is free."""
    size: int = dim.dim_value if dim.HasField("dim_value") else 0
    if size < 0:
        raise ArgumentError(f"the input {name!r} has a dimension of size {size}")
    return size or None


def _given(name: str, declared: list[int | None], given: Sequence[int]) -> list[int | None]:
    if not all(isinstance(size, int) and size > 0 for size in given):
        raise ArgumentError(f"the sizes {tuple(given)} of the input {name!r} are not all positive")
    fits = len(given) == len(declared) and all(
        a is None or a == b for a, b in zip(declared, given, strict=True)
    )
    if declared and not fits:
        raise ArgumentError(f"the input {name!r} has the sizes {declared}, not {tuple(given)}")
    return list(given)


def _empty(value: Value) -> Tensor:
    """A value of one sample on the meta device."""
    shape = [1 if size is None else size for size in value.shape]
    check_room(*shape, itemsize=value.dtype.itemsize)
    return torch.empty(shape, dtype=value.dtype, device="meta")


class _Folding:
    """Reads nodes one after the other."""

    def __init__(self, opset: int, folder: Path, found: Network) -> None:
        self.opset = opset
        self.folder = folder
        self.found = found
        self.alias: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        """Outputs that nothing here computes, such as the places of a maximum, and why."""
        self.depth = 0
        self.branches = 0
        self.taken = 0

    def result(self) -> Network:
        found = self.found
        outputs = tuple(self.name(one) for one in found.outputs)
        for given, name in zip(found.outputs, outputs, strict=True):
            if name not in found.meta and name not in found.constants:
                self.refuse_left_out(name)
                raise ArgumentError(f"nothing computes the output {given!r}")
        return replace(found, outputs=outputs).without_dead()

    def name(self, given: str) -> str:
        return self.alias.get(given, given)

    def define(self, name: str, value: Tensor) -> None:
        """A value that depends on the inputs, by its size, or a constant."""
        self.check_new(name)
        _check_size(value)
        self.taken += value.numel() * value.element_size()
        if self.taken > MOST_IN_ALL:
            raise TooLarge(f"all values together have more than {MOST_IN_ALL >> 20} MiB")
        if value.device.type == "meta":
            self.found.meta[name] = value
        else:
            self.found.constants[name] = value

    def refuse_left_out(self, name: str) -> None:
        if name in self.left_out:
            raise UnsupportedOperator(f"{shortened(name)!r}: {self.left_out[name]}")

    def check_new(self, name: str) -> None:
        held = (self.found.constants, self.found.meta, self.alias, self.left_out)
        if any(name in one for one in held):
            raise ArgumentError(f"the name {shortened(name)!r} is given twice")

    def add(self, node: NodeProto) -> None:
        """Read one node; an error names it."""
        try:
            if node.domain not in DOMAINS:
                raise UnsupportedOperator(f"the operators of {node.domain} are not known")
            if node.op_type == "If":
                self.branch(node)
            else:
                self.operator(node)
        except BoundlabError as error:
            raise type(error)(f"{title(node)}: {error}") from None

    def operator(self, node: NodeProto) -> None:
        row = find_row(node.op_type, self.opset)
        given = {one.name: read_attribute(one, self.folder) for one in node.attribute}
        attributes = row.attributes(given)
        outputs = tuple(node.output)
        self.check_count(node)
        if row.counts_outputs:
            attributes[COUNT] = len(outputs)
        args = self.arguments(row, node, set(attributes))
        step = Step(title(node), row.function, args, attributes, outputs)
        self.evaluate(step)

    def check_count(self, node: NodeProto) -> None:
        """Refuse more outputs than the operator has."""
        defs = import_onnx().defs
        if not defs.has(node.op_type):  # a row may be of a later standard than the package
            return
        schema = defs.get_schema(node.op_type, min(self.opset, defs.onnx_opset_version()), "")
        if len(node.output) > schema.max_output:
            raise ArgumentError(
                f"the operator has {schema.max_output} outputs at most, not {len(node.output)}"
            )

    def arguments(self, row: Row, node: NodeProto, named: set[str]) -> tuple[Any, ...]:
        """References to tensors, and numbers in place of constants that are no tensors."""
        places = row.places(len(node.input))
        absent = [p for p in row.parameters[len(places) :] if p.required and p.name not in named]
        if absent and not absent[0].variadic:
            raise ArgumentError(f"its input or attribute {absent[0].name} is missing")
        return tuple(
            self.argument(place, given) for place, given in zip(places, node.input, strict=True)
        )

    def argument(self, place: Parameter, given: str) -> Any:
        if not given:
            return None
        name = self.name(given)
        if name in self.found.constants:
            known = place.read(self.found.constants[name])
            return Ref(name) if isinstance(known, Tensor) else known
        if name not in self.found.meta:
            self.refuse_left_out(name)
            raise ArgumentError(f"nothing computes its input {given!r}")
        if place.kind not in ("tensor", "operand"):
            raise UnsupportedOperator(
                f"its {place.name} depends on the inputs of the network; it must be known when "
                "the network is loaded"
            )
        return Ref(name)

    def evaluate(self, step: Step) -> None:
        """Add a step, or what it gives, if that is known."""
        sizes = {name: self.size(name) for name in step.reads}
        if all(name in self.found.constants for name in step.reads):
            results = self.computed(step, sizes)
        else:
            results = _run(step, sizes)
        step = self.without_left_out(step, len(results))
        known = True
        for name, value in zip(step.outputs, results, strict=False):
            known = self.output(step, name, value, sizes) and known
        if not known:
            self.found.steps.append(step)

    def without_left_out(self, step: Step, count: int) -> Step:
        """A step without the outputs that it does not compute, which nothing may read."""
        for name in filter(None, step.outputs[count:]):
            self.check_new(name)
            self.left_out[name] = f"of {step.title} only the first {count} outputs are supported"
        return replace(step, outputs=step.outputs[:count])

    def output(self, step: Step, name: str, value: Any, sizes: Mapping[str, Tensor]) -> bool:
        """Define an output; whether it needs no step."""
        if not name:
            return True
        if not isinstance(value, Tensor):
            raise UnsupportedOperator("a result that is no tensor is not supported")
        depends = any(name in self.found.meta for name in step.reads)
        if depends and value.device.type != "meta" and step.function not in SHAPES:
            raise UnsupportedOperator("its result is taken for a constant")  # a row's mistake
        for source, size in sizes.items():
            if value is size or value is self.found.constants.get(source):
                self.check_new(name)
                self.alias[name] = source
                return True
        self.define(name, value)
        return value.device.type != "meta"

    def size(self, name: str) -> Tensor:
        if name in self.found.constants:
            return self.found.constants[name].to("meta")
        return self.found.meta[name]

    def computed(self, step: Step, sizes: Mapping[str, Tensor]) -> tuple[Any, ...]:
        """The results of a step that reads constants only, if they are not too large."""
        with suppress(ArgumentError), torch.device("meta"):  # unless its size needs its values
            _run(_on_meta(step), sizes)
        return _run(step, self.found.constants)

    def branch(self, node: NodeProto) -> None:
        """An If whose condition is known: the nodes of the branch that is taken."""
        condition = self.found.constants.get(self.name(node.input[0] if node.input else ""))
        if condition is None:
            raise UnsupportedOperator("a choice by a value that depends on the inputs")
        if condition.numel() != 1:
            raise ArgumentError(f"its condition has the shape {tuple(condition.shape)}")
        if self.depth >= DEEPEST:
            raise ArgumentError(f"graphs are nested more than {DEEPEST} deep")
        wanted = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        graphs = {one.name: one.g for one in node.attribute if one.HasField("g")}
        if wanted not in graphs:
            raise ArgumentError(f"it has no {wanted}")
        self.branches += 1
        graph = with_own_names(graphs[wanted], f"branch{self.branches}.")
        for one in graph.initializer:
            self.define(one.name, read_tensor(one, self.folder))
        self.depth += 1
        for inner in in_order(graph.node):
            self.add(inner)
        self.depth -= 1
        for name, inside in zip(node.output, graph.output, strict=False):
            self.check_new(name)
            self.alias[name] = self.name(inside.name)


class _Limited(TorchDispatchMode):
    """Refuses what is too large on the way to a result as well."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for value in found if isinstance(found, (tuple, list)) else (found,):
            _check_size(value)
        return found


def _on_meta(step: Step) -> Step:
    """A step whose attributes are on the meta device too."""
    moved = {
        name: value.to("meta") if isinstance(value, Tensor) else value
        for name, value in step.kwargs.items()
    }
    return replace(step, kwargs=moved)


def _check_size(value: Any) -> None:
    if isinstance(value, Tensor):
        check_room(*value.shape, itemsize=value.element_size())
        if value.dim() > MOST_DIMS:
            raise TooLarge(f"a value has more than {MOST_DIMS} dimensions")


def _run(step: Step, values: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """The results of a step; what torch complains of as our error."""
    try:
        with torch.no_grad(), _Limited():
            return step.run(values)
    except BoundlabError:
        raise
    except Exception as error:  # torch, numpy and Python complain in many types
        shapes = ", ".join(str(tuple(values[name].shape)) for name in step.reads)
        text = " ".join(str(error).split())[:300]
        raise ArgumentError(f"it does not take values of shape {shapes}: {text}") from None
