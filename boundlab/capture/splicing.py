"""Operators of a program written by functions of others, each where it stands.

``ExportedProgram.run_decompositions`` does the same by tracing the whole program twice, which takes
longer than the export. Here only the operators that a table has are traced, each on the shapes and
types that are known of its arguments; a second call of the same kind is written like the first. All
other nodes stay, with what is known of their values. That is right where nothing that is read later
is written into (``writes.py``): :class:`NotPlain` is raised for other programs, which torch has to
take apart.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    OutputSpec,
)

from boundlab.capture.complex_writer import KEPT_META, tensors_of
from boundlab.capture.pieces import (
    Function,
    NotPlain,
    Piece,
    Whole,
    kind,
    kind_of_value,
    mapped,
    nodes_in,
    piece_of,
    traced,
)
from boundlab.capture.simplify import VIEWS
from boundlab.capture.writes import Writes
from boundlab.compat.private import (
    OpOverload,
    always_taken_apart,
    any_free_size,
    fake_mode_of,
    functional,
    size_expression,
    takes_apart_by_operator,
    with_gradients,
    writes,
)
from boundlab.rules.registry import aten

SHAPES = (aten.reshape.default, *VIEWS)
"""What only gives a value another shape is written in one way, and fits whatever it reads."""
DEEPEST = 40
"""How often what stands for an operator may itself be taken apart."""


def splice(program: ExportedProgram, table: Mapping[Any, Function]) -> ExportedProgram:
    """A new program with the operators of a table written by its functions. What torch.export
    takes apart whenever it may (``flatten``, ``to``) is taken apart too."""
    if not takes_apart_by_operator():
        raise NotPlain("this version of torch was not tested for that")
    check(program.graph)
    splicer = _Splicer(program, table)
    with warnings.catch_warnings(), torch.no_grad(), any_free_size(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        for backend in (torch.backends.mkldnn, torch.backends.nnpack):
            # torch's decompositions of recurrent layers choose their kernels, which have no rules
            stack.enter_context(backend.flags(enabled=False))
        splicer.write()
    signature = ExportGraphSignature(
        list(program.graph_signature.input_specs), list(splicer.outputs())
    )
    splicer.graph.eliminate_dead_code()
    return ExportedProgram(
        root=splicer.constants,
        graph=splicer.graph,
        graph_signature=signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
    )


def check(graph: fx.Graph) -> None:
    """Raise NotPlain for a graph with writes that are no new values, before anything is traced: a
    trace may leave assumptions on sizes."""
    tensors = Writes(graph)
    for node in graph.nodes:
        target = node.target
        if not isinstance(target, OpOverload) or target is aten.detach_.default:
            continue
        if writes(target) and (functional(target) is None or not tensors.is_new_value(node)):
            raise NotPlain(f"{target} writes into a tensor")


class _Splicer:
    """Writes the graph of a program again. ``values``: node of the program -> what stands for it:
    a node, a number, or a sequence of them. ``sizes``: expression of free sizes -> the node that
    computes it. ``free``: free size -> an input and the dimension that has it."""

    def __init__(self, program: ExportedProgram, table: Mapping[Any, Function]) -> None:
        self.program = program
        self.table = table
        self.graph = fx.Graph()
        self.values: dict[fx.Node, Any] = {}
        self.constants: dict[str, Any] = {}
        self.sizes: dict[sympy.Expr, fx.Node] = {}
        self.free: dict[sympy.Expr, tuple[fx.Node, int]] = {}
        self.pieces: dict[object, Piece | None] = {}
        self.meta: Mapping[str, Any] = {}
        self.writes = Writes(program.graph)
        tensors = (tensor for node in program.graph.nodes for tensor in tensors_of(node))
        mode = fake_mode_of(tensors)
        if mode is None:
            raise NotPlain("nothing is known of its values")
        self.mode = mode

    # -- the program -------------------------------------------------------------------------------

    def write(self) -> None:
        for node in self.program.graph.nodes:
            if node.op != "placeholder" and not self.sizes:
                self._write_sizes()
            self.meta = _lines(node)
            if node.op == "call_function":
                args, kwargs = mapped((node.args, node.kwargs), self.values)
                self.values[node] = self.call(node, args, kwargs, 0)
            elif node.op == "output":
                self.graph.output(mapped(node.args[0], self.values)).meta = dict(node.meta)
            else:
                self.values[node] = self._independent(node)

    def _write_sizes(self) -> None:
        """The free sizes of inputs; those that nobody reads are dropped later."""
        for size, (source, dim) in self.free.items():
            value = source.meta["val"].shape[dim]
            self.sizes[size] = self._new(aten.sym_size.int, (source, dim), {}, value)

    def _independent(self, node: fx.Node) -> fx.Node | Piece:
        """An input, a parameter, a constant, or a part of the program that is a graph."""
        if node.op == "get_attr":
            value = getattr(self.program.graph_module, str(node.target))
            if isinstance(value, fx.GraphModule):
                return piece_of(value)
            self.constants[str(node.target)] = value
        new = self.graph.create_node(node.op, node.target, node.args, name=node.name)
        new.name = node.name  # words of Python, such as input, get another one
        new.meta = dict(node.meta)
        for tensor in tensors_of(node):
            for dim, size in enumerate(tensor.shape):
                if isinstance(size, torch.SymInt):
                    self.free.setdefault(size_expression(size), (new, dim))
        return new

    def outputs(self) -> Iterator[OutputSpec]:
        """The outputs of the program under the names that they have now."""
        (end,) = (node for node in self.program.graph.nodes if node.op == "output")
        returned = {node.name: self.values[node] for node in end.all_input_nodes}
        for spec in self.program.graph_signature.output_specs:
            if isinstance(spec.arg, ConstantArgument):
                yield spec
                continue
            value = returned.get(spec.arg.name)
            if not isinstance(value, fx.Node):
                raise NotPlain(f"the output {spec.arg.name} is no node")
            yield replace(spec, arg=replace(spec.arg, name=value.name))

    # -- calls -------------------------------------------------------------------------------------

    def call(self, node: fx.Node, args: Any, kwargs: Any, depth: int) -> Any:
        """What stands for a call in the new graph, with these arguments in it."""
        target: Any = node.target
        value = node.meta.get("val")
        if isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(target, args, kwargs, value)
        if target is operator.getitem:
            return self._item(args, value)
        if target is with_gradients:
            return self._inserted(args[1], args[2:], depth, own_lines=True)
        if not isinstance(target, OpOverload):
            raise NotPlain(f"{target} is no operator")
        if target is aten._assert_tensor_metadata.default:
            return None
        if target in SHAPES and len(args) == 2:
            return self._new(aten.reshape.default, _with_sizes(args, value), kwargs, value)
        if writes(target):
            return self._written(node, args, kwargs)
        if not tensors_of(node) or depth > DEEPEST:
            raise NotPlain(f"{target} does more than to compute tensors, or is made of itself")
        return self._plain(target, args, kwargs, value, depth)

    def _item(self, args: Any, value: object) -> Any:
        """One of several values, which are known if their operator was taken apart."""
        source, place = args
        if isinstance(source, (tuple, list)):
            return source[place]
        return self._new(operator.getitem, args, {}, value)

    def _plain(self, target: OpOverload, args: Any, kwargs: Any, value: object, depth: int) -> Any:
        """The same of an operator that only computes tensors."""
        piece = self._piece(target, args, kwargs)
        if piece is None:
            return self._new(target, args, kwargs, value)
        return self._inserted(piece, nodes_in((args, kwargs)), depth)

    def _new(self, target: Any, args: Any, kwargs: Any, value: object) -> fx.Node:
        name = None
        if isinstance(target, OpOverload):
            name = target.overloadpacket.__name__
        new = self.graph.create_node("call_function", target, args, kwargs, name=name)
        new.meta = {**self.meta, "val": value}
        return new

    def _number(self, target: Any, args: Any, kwargs: Any, value: Any) -> Any:
        """A number that is computed from sizes: each is computed once."""
        if isinstance(value, (int, float)):
            return value
        if not isinstance(value, torch.SymInt):
            return self._new(target, args, kwargs, value)
        expression = size_expression(value)
        if expression.is_Integer:
            return int(expression)
        if expression not in self.sizes:
            self.sizes[expression] = self._new(target, args, kwargs, value)
        return self.sizes[expression]

    def _inserted(
        self, piece: Piece, inputs: Sequence[fx.Node], depth: int, own_lines: bool = False
    ) -> Any:
        """What a piece returns, after its nodes are written. own_lines: they come from the user's
        code themselves."""
        values: dict[fx.Node, Any] = {}
        given = iter(inputs)
        for node in piece.graph.nodes:
            if own_lines:
                self.meta = _lines(node)
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = self._constant(node, piece.constants[str(node.target)])
            elif node.op == "output":
                return mapped(node.args[0], values)
            else:
                args, kwargs = mapped((node.args, node.kwargs), values)
                values[node] = self.call(node, args, kwargs, depth + 1)
        raise AssertionError("a graph has an output")

    def _constant(self, node: fx.Node, value: Tensor) -> fx.Node:
        name = f"constant_of_piece_{len(self.constants)}"
        self.constants[name] = value
        new = self.graph.get_attr(name)
        new.meta = {**self.meta, "val": self.mode.from_tensor(value, static_shapes=True)}
        return new

    # -- writing in place --------------------------------------------------------------------------

    def _written(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """What stands for a call that writes into its first argument: the value that it writes,
        which is what all later readers of that tensor read. NotPlain if it is not as simple."""
        target: Any = node.target
        if target is aten.detach_.default:
            return self._new(aten.detach.default, args, kwargs, node.meta["val"])
        plain = functional(target)
        if plain is None or not self.writes.is_new_value(node):
            raise NotPlain(f"{target} writes into a tensor")
        given: Any = fx.node.map_aggregate((node.args, node.kwargs), _value)
        with self.mode:
            result = plain(*given[0], **given[1])
        if kind_of_value(result) != kind_of_value(node.meta["val"]):
            raise NotPlain(f"{target} writes into a tensor of another shape or type")
        found = self._plain(plain, args, kwargs, result, 0)
        for other in self.writes.same(node):
            self.values[other] = found
        return found

    # -- pieces ------------------------------------------------------------------------------------

    def _piece(self, target: OpOverload, args: Any, kwargs: Any) -> Piece | None:
        """What stands for an operator with these arguments; None if it stays."""
        function = self.table.get(target) or always_taken_apart(target)
        if function is None:
            return None
        key = target, kind((args, kwargs))
        if key not in self.pieces:
            try:
                with self.mode:
                    self.pieces[key] = traced(function, args, kwargs, function != target.decompose)
            except Whole:
                self.pieces[key] = None
        return self.pieces[key]


def _lines(node: fx.Node) -> dict[str, Any]:
    """What a node knows of the user's code."""
    return {key: node.meta[key] for key in KEPT_META if key in node.meta}


def _with_sizes(args: Any, value: Any) -> tuple[Any, Any]:
    """The arguments of a reshape, with the size that it is left to find out, if that is fixed."""
    source, sizes = args
    return source, [
        own if size == -1 and isinstance(own, int) else size
        for size, own in zip(sizes, value.shape, strict=True)
    ]


def _value(leaf: Any) -> Any:
    """What is known of the value of a node; anything else as it is."""
    if isinstance(leaf, fx.Node):
        return leaf.meta["val"]
    return leaf
