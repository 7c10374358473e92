"""Layers followed by a scale and a shift per channel (batch norm), read as one layer.

    conv(x, W, b) * s + t  =  conv(x, s W, s b + t)

with constant W, b, s and t: fewer passes over values and coefficients in every method, and the same
function. The graph that users see keeps its nodes; only plans, which know what is perturbed, work
on the folded one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from boundlab.graph.graph import Graph, Node, Ref
from boundlab.rules.registry import CUTS, aten

DIMS = {
    aten.linear.default: 0,
    aten.conv1d.default: 1,
    aten.conv2d.default: 2,
    aten.conv3d.default: 3,
}
"""Layers, and how many dimensions follow the channels of their result."""


def fold(graph: Graph, variable: set[str], kept: tuple[str, ...]) -> Graph:
    """The graph with every layer folded whose parameters, scale and shift are not among
    ``variable``, where no other node reads what lies between and ``kept`` does not name it."""
    readers = Counter(
        name for node in graph.nodes.values() if node.op not in CUTS for name in node.inputs
    )
    readers.update(kept)
    nodes: dict[str, Node] = {}
    for node in graph.nodes.values():
        for part in _folded(node, graph, variable, readers):
            nodes[part.name] = part
    return replace(graph, nodes=nodes)


def _folded(node: Node, graph: Graph, variable: set[str], readers: Counter[str]) -> list[Node]:
    """The node itself, or a layer that does the same, behind the nodes that make its weight and
    bias."""
    shift = _constant_of(node, aten.add.Tensor, variable)
    between = None if shift is None else _only_read_by(node, graph, variable, readers)
    scale = None if between is None else _constant_of(between, aten.mul.Tensor, variable)
    layer = (
        None
        if scale is None or between is None
        else _only_read_by(between, graph, variable, readers)
    )
    if (
        layer is None
        or layer.op not in DIMS
        or layer.output is not None
        or shift is None
        or scale is None
    ):
        return [node]
    x, weight, *rest = layer.args
    bias = rest[0] if rest else layer.kwargs.get("bias")
    dims = DIMS[layer.op]
    per_channel = all(
        _is_per_channel(graph.nodes[constant.name], dims) for constant in (shift, scale)
    )
    if (
        not per_channel
        or not isinstance(x, Ref)
        or any(isinstance(p, Ref) and p.name in variable for p in (weight, bias))
    ):
        return [node]
    scaled = Node(f"{node.name}.weight", _scaled, (weight, scale))
    moved = Node(f"{node.name}.bias", _moved, (bias, scale, shift, Ref(scaled.name)))
    kwargs = {key: value for key, value in layer.kwargs.items() if key != "bias"}
    return [
        scaled,
        moved,
        replace(
            node, op=layer.op, args=(x, Ref(scaled.name), Ref(moved.name), *rest[1:]), kwargs=kwargs
        ),
    ]


def _constant_of(node: Node, op: Callable[..., Any], variable: set[str]) -> Ref | None:
    """The constant operand of a sum or product with a perturbed value."""
    if node.op is not op or node.kwargs or node.name not in variable:
        return None
    constant = [arg for arg in node.args if isinstance(arg, Ref) and arg.name not in variable]
    return constant[0] if len(constant) == 1 else None


def _only_read_by(
    node: Node, graph: Graph, variable: set[str], readers: Counter[str]
) -> Node | None:
    """What makes the perturbed operand of a node, if nothing else reads it."""
    (operand,) = (arg for arg in node.args if isinstance(arg, Ref) and arg.name in variable)
    return graph.nodes[operand.name] if readers[operand.name] == 1 else None


def _is_per_channel(node: Node, dims: int) -> bool:
    return node.op in (aten.view.default, aten.reshape.default) and list(node.args[1]) == [
        -1,
        *[1] * dims,
    ]


def _scaled(weight: Tensor, scale: Tensor) -> Tensor:
    return weight * scale.reshape(-1, *[1] * (weight.dim() - 1))


def _moved(bias: Tensor | None, scale: Tensor, shift: Tensor, weight: Tensor) -> Tensor:
    moved = (
        shift.flatten() if bias is None else torch.addcmul(shift.flatten(), bias, scale.flatten())
    )
    return moved.expand(len(weight))  # a shift may be one number for all channels
