"""Complex numbers as pairs of real ones.

Bounds are bounds of real numbers, so a captured program may compute with nothing else. Every node
of a complex type that depends on an input, a parameter or a buffer is written again, by a row of
``complex_rows.py`` for its operator, as two real nodes; whatever reads it reads these. Complex
constants stay as they are, and are taken apart where they meet a pair. Nodes that nobody reads any
more are dropped later, with all others of that kind.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from boundlab.capture import fourier_rows as _fourier_rows  # fills the table
from boundlab.capture.complex_rows import find_row
from boundlab.capture.complex_writer import Pair, Writer, is_complex, tensors_of
from boundlab.capture.fx_reader import origin
from boundlab.capture.simplify import VIEWS
from boundlab.compat.private import any_free_size, free_sizes_computed
from boundlab.errors import BoundlabError, CaptureError, UnsupportedOperator
from boundlab.graph.graph import op_name
from boundlab.rules.registry import aten

del _fourier_rows

FIXED = (InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ, InputKind.TOKEN)
"""Inputs of a program whose values stay as they are."""


def as_pairs(program: ExportedProgram) -> ExportedProgram:
    """The program without complex values, up to constants; it is changed in place."""
    if not any(map(is_complex, program.graph.nodes)):
        return program
    writer, renamed = Writer(program), dict[str, str]()
    with torch.no_grad(), any_free_size(), free_sizes_computed():
        for node in _moving(program):
            if node.target in VIEWS:  # parts lie in memory otherwise than their pair
                node.target = aten.reshape.default
            result = _written(writer, node)
            if result is not None:
                node.replace_all_uses_with(result)
                renamed[node.name] = result.name
    _rename_outputs(program, renamed)
    return program


def _moving(program: ExportedProgram) -> list[fx.Node]:
    """The calls whose values depend on inputs, parameters or buffers; sizes do not."""
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    found: dict[fx.Node, None] = {}
    for node in program.graph.nodes:
        free = node.op == "placeholder" and specs[node.name].kind not in FIXED
        reads = any(source in found for source in node.all_input_nodes)
        if tensors_of(node) and (free or reads):
            found[node] = None
    return [node for node in found if node.op == "call_function"]


def _written(writer: Writer, node: fx.Node) -> fx.Node | None:
    """The real node that takes the place of one, if one does. What is complex becomes a pair of the
    writer's."""
    with writer.in_place_of(node):
        if not is_complex(node) and not any(map(is_complex, node.all_input_nodes)):
            return _part_of_stack(writer, node)
        result = _by_row(writer, node)
    if isinstance(result, fx.Node):
        return result
    writer.pairs[node] = result
    _measure_parts(node, result)
    return None


def _by_row(writer: Writer, node: fx.Node) -> Pair | fx.Node:
    target: Any = node.target
    named = f"{op_name(target)} ({origin(node)}) is applied to complex numbers"
    row = find_row(node)
    if row is None:
        raise UnsupportedOperator(
            f"{named}, on which nothing is known of it: write it with sums, products, Fourier "
            "transforms and absolute values, or with real numbers"
        )
    try:
        with writer.in_place_of(node):
            result = row(writer, node)
            if isinstance(result, Pair):
                return _typed(writer, result, node)
            return result
    except BoundlabError:
        raise
    except Exception as error:  # whatever torch says of the shapes and types of parts
        first_line = str(error).strip().split("\n")[0]
        raise UnsupportedOperator(f"{named} in a way that has no rule: {first_line}") from error


def _typed(writer: Writer, pair: Pair, node: fx.Node) -> Pair:
    """The pair as numbers of the node's type: operators on mixed types may give others."""
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        return pair
    return Pair(*[writer.cast(part, value.dtype.to_real()) for part in pair.parts])


def _part_of_stack(writer: Writer, node: fx.Node) -> fx.Node | None:
    """The part of a pair that a node selects from both side by side: that is what ``z.real`` is."""
    if node.target is not aten.select.int or node.args[0] not in writer.stacks:
        return None
    args: Any = node.args
    source, dim, index = args
    if dim not in (-1, source.meta["val"].dim() - 1) or index not in (0, 1):
        return None
    return writer.nodes_of(writer.stacks[source])[index]


def _measure_parts(node: fx.Node, pair: Pair) -> None:
    """Whatever asks for the size of a complex node asks for that of a part of it."""
    part = next((part for part in pair.parts if isinstance(part, fx.Node)), None)
    for user in list(node.users):
        if user.op == "call_function" and not tensors_of(user) and part is not None:
            user.replace_input_with(node, part)


def _rename_outputs(program: ExportedProgram, renamed: dict[str, str]) -> None:
    for spec in program.graph_signature.output_specs:
        if not isinstance(spec.arg, ConstantArgument):
            spec.arg.name = renamed.get(spec.arg.name, spec.arg.name)
    (end,) = (node for node in program.graph.nodes if node.op == "output")
    if any(map(is_complex, end.all_input_nodes)):
        raise CaptureError(
            "the model returns complex numbers, which have no order and so no bounds: return "
            "torch.view_as_real of them"
        )
