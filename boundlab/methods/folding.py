"""Layers followed by a scale and a shift per channel (batch norm), read as one layer.

    conv(x, W, b) * s + t  =  conv(x, s W, s b + t)

with constant W, b, s and t: fewer passes over values and coefficients in every method, and the same
function. The graph that users see keeps its nodes; only plans, which know what is perturbed, work
on the folded one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.graph.graph import Graph, Node, Operator, Ref
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
    layers = _Layers(graph, variable, readers)
    nodes: dict[str, Node] = {}
    for node in graph.nodes.values():
        for part in layers.folded(node):
            nodes[part.name] = part
    return replace(graph, nodes=nodes)


@dataclass(frozen=True, eq=False)
class _ScaledLayer:
    """``layer(x) * scale + shift``."""

    layer: Node
    scale: Ref
    shift: Ref


@dataclass(frozen=True, eq=False)
class _Layers:
    """The layers of a graph. readers: by how many nodes the value of a node is read."""

    graph: Graph
    variable: set[str]
    readers: Counter[str]

    def folded(self, node: Node) -> list[Node]:
        """The node itself, or a layer that does the same, behind the nodes that make its weight and
        bias."""
        found = self._ending_at(node)
        if found is None:
            return [node]
        layer = found.layer
        x, weight, *rest = layer.args
        bias, others = layer.kwargs.get("bias"), []
        if rest:
            bias, *others = rest
        fixed = not self._is_perturbed(weight) and not self._is_perturbed(bias)
        if not isinstance(x, Ref) or not fixed:
            return [node]
        scaled = Node(f"{node.name}.weight", _scaled, (weight, found.scale))
        terms = (bias, found.scale, found.shift, Ref(scaled.name))
        moved = Node(f"{node.name}.bias", _moved, terms)
        args = (x, Ref(scaled.name), Ref(moved.name), *others)
        kwargs = {key: value for key, value in layer.kwargs.items() if key != "bias"}
        return [scaled, moved, replace(node, op=layer.op, args=args, kwargs=kwargs)]

    def _ending_at(self, node: Node) -> _ScaledLayer | None:
        """The layer whose result, scaled and shifted per channel, a node is; None if it is none."""
        shift = self._constant_of(node, aten.add.Tensor)
        if shift is None:
            return None
        product = self._only_read_by(node)
        if product is None:
            return None
        scale = self._constant_of(product, aten.mul.Tensor)
        if scale is None:
            return None
        layer = self._only_read_by(product)
        if layer is None or layer.op not in DIMS or layer.output is not None:
            return None
        dims = DIMS[layer.op]
        if not all(_is_per_channel(self.graph.nodes[ref.name], dims) for ref in (scale, shift)):
            return None
        return _ScaledLayer(layer, scale, shift)

    def _is_perturbed(self, arg: object) -> bool:
        return isinstance(arg, Ref) and arg.name in self.variable

    def _constant_of(self, node: Node, op: Operator) -> Ref | None:
        """The constant operand of a sum or product with a perturbed value."""
        if node.op is not op or node.kwargs or node.name not in self.variable:
            return None
        operands = [arg for arg in node.args if isinstance(arg, Ref)]
        constant = [arg for arg in operands if arg.name not in self.variable]
        if len(constant) != 1:
            return None
        return constant[0]

    def _only_read_by(self, node: Node) -> Node | None:
        """What makes the perturbed operand of a node, if nothing else reads it."""
        (operand,) = (arg for arg in node.args if self._is_perturbed(arg))
        if self.readers[operand.name] != 1:
            return None
        return self.graph.nodes[operand.name]


def _is_per_channel(node: Node, dims: int) -> bool:
    """Whether a node is one number for every channel, in front of so many dimensions."""
    if node.op not in (aten.view.default, aten.reshape.default):
        return False
    return list(node.args[1]) == [-1, *[1] * dims]


def _scaled(weight: Tensor, scale: Tensor) -> Tensor:
    return weight * scale.reshape(-1, *[1] * (weight.dim() - 1))


def _moved(bias: Tensor | None, scale: Tensor, shift: Tensor, weight: Tensor) -> Tensor:
    moved = shift.flatten()
    if bias is not None:
        moved = torch.addcmul(moved, bias, scale.flatten())
    return moved.expand(len(weight))  # a shift may be one number for all channels
