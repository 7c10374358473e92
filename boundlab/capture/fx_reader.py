"""The graph of an exported program (torch.fx) as ours, with what is known of its values."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from boundlab.capture.normalise import normalise
from boundlab.capture.values import Values
from boundlab.compat.private import guards, size_expression
from boundlab.errors import CaptureError
from boundlab.graph.graph import Graph, Node, Origin, Ref, op_name
from boundlab.rules.registry import OWN, aten

RANDOM = frozenset(
    (
        aten.native_dropout, aten.bernoulli, aten.rand_like, aten.randn_like, aten.randint_like,
        aten.rand, aten.randn, aten.randint,
        aten.randperm, aten.normal, aten.normal_functional, aten.uniform, aten.multinomial,
        aten.poisson, aten.exponential, aten.rrelu_with_noise,
    )
)  # fmt: skip
"""Operators that draw random numbers."""

FRAME = re.compile(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)')
"""A frame of a stack trace: file, line, source."""


IN_TRAIN_MODE = (
    "put the model in eval mode (model.eval()) before capturing it. In a training loop put the "
    "layers that draw, such as nn.Dropout, in eval mode alone (layer.eval() after model.train()), "
    "and run the clean pass in bl.CleanPass(net)"
)
IN_EVAL_MODE = (
    "it draws in eval mode as well. Draw outside and give the numbers as an input of the model, "
    "or keep them in a buffer; dropout as a function needs training=self.training"
)


def read(program: ExportedProgram, training: bool) -> tuple[Graph, Values]:
    """The graph of a program, and what is known of the values of its nodes. No batch is looked
    for. training: whether a part of the model is in train mode."""
    return _Reader(program, training).read()


class _Reader:
    """Reads the nodes of a program in order. ``several``: the nodes that return more than one
    value, by name."""

    def __init__(self, program: ExportedProgram, training: bool) -> None:
        self.program = program
        self.training = training
        self.specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        self.inputs: list[str] = []
        self.parameters: dict[str, str] = {}
        self.constants: dict[str, Tensor] = {}
        self.nodes: dict[str, Node] = {}
        self.several: dict[str, Node] = {}
        self.values = Values()

    def read(self) -> tuple[Graph, Values]:
        kinds = {
            "placeholder": self._placeholder,
            "get_attr": self._attribute,
            "call_function": self._call,
        }
        for node in self.program.graph.nodes:
            _note(self.values, node.name, node.meta.get("val"))
            if node.op in kinds:
                kinds[node.op](node)
        free = set(self.values.free.values())
        self.values.assumptions.extend(_assumptions(self.program, free))
        graph = Graph(
            self.nodes,
            tuple(self.inputs),
            self.parameters,
            self.constants,
            tuple(self._outputs()),
            batched=False,
        )
        return graph, self.values

    def _placeholder(self, node: fx.Node) -> None:
        spec = self.specs[node.name]
        if spec.kind == InputKind.USER_INPUT:
            self.inputs.append(node.name)
            self.values.note_input(node.name)
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            self.parameters[node.name] = str(spec.target)
        else:
            self.constants[node.name] = self.program.constants[str(spec.target)]
        self.nodes[node.name] = Node(node.name)

    def _attribute(self, node: fx.Node) -> None:
        self.constants[node.name] = getattr(self.program.graph_module, str(node.target))
        self.nodes[node.name] = Node(node.name)

    def _call(self, node: fx.Node) -> None:
        target: Any = node.target
        args: Any = fx.node.map_aggregate(node.args, _as_ref)
        kwargs: Any = fx.node.map_aggregate(node.kwargs, _as_ref)
        found = Node(
            node.name, OWN.get(target, target), tuple(args), dict(kwargs), origin=origin(node)
        )
        if found.packet in RANDOM:
            advice = IN_TRAIN_MODE if self.training else IN_EVAL_MODE
            raise CaptureError(
                f"{op_name(target)} ({found.origin}) is random, so the outputs have no bounds: "
                f"{advice}"
            )
        source = self.several.get(_first_name(found))
        if target is operator.getitem and source is not None:
            part = replace(source, name=node.name, output=int(args[1]), origin=found.origin)
            self.nodes[node.name] = part
            return
        for step in normalise(found, self.nodes, self.values):
            self.nodes[step.name] = step
        if isinstance(node.meta.get("val"), (tuple, list)):
            self.several[node.name] = self.nodes[node.name]

    def _outputs(self) -> Iterator[object]:
        """References to nodes, and plain constants."""
        for spec in self.program.graph_signature.output_specs:
            if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
                if spec.arg.name in self.nodes:
                    yield Ref(spec.arg.name)
                elif isinstance(spec.arg, ConstantArgument):
                    yield spec.arg.value
                else:
                    yield None


def _as_ref(leaf: Any) -> Any:
    if isinstance(leaf, fx.Node):
        return Ref(leaf.name)
    return leaf


def _first_name(node: Node) -> str:
    """The name of the node that is the first argument; empty if it is none."""
    if node.args and isinstance(node.args[0], Ref):
        return node.args[0].name
    return ""


def _note(values: Values, name: str, value: object) -> None:
    """Note what torch.export says of a value: a tensor without numbers, or an integer."""
    if isinstance(value, Tensor):
        values.note_tensor(name, map(size_expression, value.shape), value.dtype)
    elif isinstance(value, (int, torch.SymInt)):
        values.numbers[name] = size_expression(value)


# -- free sizes ------------------------------------------------------------------------------------


def free_symbols(program: ExportedProgram) -> set[sympy.Symbol]:
    """The symbols of free batch sizes."""
    found: set[sympy.Symbol] = set()
    for value in _placeholders(program):
        if value.dim():
            found |= size_expression(value.shape[0]).free_symbols
    return found


def _placeholders(program: ExportedProgram) -> Iterator[Tensor]:
    """Inputs, parameters and constants that are tensors, as torch.export sees them."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, Tensor):
            yield value


def _assumptions(program: ExportedProgram, free: set[sympy.Symbol]) -> list[sympy.Basic]:
    """The relations between free sizes that tracing met and took for true, in a fixed order; those
    with sizes that depend on values say nothing of the inputs."""
    found: set[sympy.Basic] = set()
    for value in _placeholders(program):
        for size in value.shape:
            if isinstance(size, torch.SymInt):
                found.update(guards(size))
    for symbol, span in program.range_constraints.items():
        if span.lower > 2:  # what torch takes for granted is no assumption of this model
            found.add(symbol >= span.lower)
        if isinstance(span.upper, sympy.Integer):
            found.add(symbol <= span.upper)
    found.discard(sympy.true)
    return sorted((relation for relation in found if relation.free_symbols <= free), key=str)


# -- origins ---------------------------------------------------------------------------------------


def origin(node: fx.Node) -> Origin:
    return Origin(_module_path(node), _source_line(node))


def _module_path(node: fx.Node) -> str:
    """The path of the innermost module whose code made a node; empty outside of modules."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    path = str(stack[-1][0])
    if path.startswith("_empty"):
        return ""
    return path


def _source_line(node: fx.Node) -> str:
    """``file:line: source`` of the user's innermost code, of torch's if there is no other."""
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if "/torch/" not in frame[0]] or frames
    if not own:
        return ""
    path, line, source = own[-1]
    return f"{path.rsplit('/', 1)[-1]}:{line}: {source.strip()}"
