"""Which writes into tensors can be read as new values.

``y.relu_()`` computes ``relu(y)``, and everything that reads ``y`` later reads that. It is as
simple where nothing else is read later that may lie in the same memory: no view of ``y``, nor what
``y`` is a view of; and where ``y`` is no input, parameter or buffer, which would stay changed.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from boundlab.capture.complex_writer import tensors_of
from boundlab.compat.private import OpOverload, op_arguments, pytree, says_what_it_shares
from boundlab.rules.registry import aten

NEW = frozenset(
    (
        aten.linear.default, aten.matmul.default, aten.bilinear.default,
        aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
        aten.batch_norm.default, aten.layer_norm.default, aten.group_norm.default,
        aten.softmax.int, aten.log_softmax.int, aten.scaled_dot_product_attention.default,
    )
)  # fmt: skip
"""Operators made of others whose result is a tensor of its own, whatever they are given."""
COPYING = (aten.copy_.default,)
"""Writes that are no operator of their own."""

Groups = dict[fx.Node, set[fx.Node]]
"""Node -> all nodes whose values may lie in the same memory as its own."""


class Writes:
    """The writes of one graph."""

    def __init__(self, graph: fx.Graph) -> None:
        self.place = {node: place for place, node in enumerate(graph.nodes)}
        self.groups = _groups(graph)

    def same(self, node: fx.Node) -> list[fx.Node]:
        """The nodes that are the tensor which a node writes into: before it, and after it and other
        writes."""
        tensor = _written(node)
        return [other for other in self.groups[tensor] if _written(other) is tensor]

    def is_new_value(self, node: fx.Node) -> bool:
        """Whether a node that writes into its first argument computes a new value of that alone."""
        if node not in self.place or node.target in COPYING or not _writes_first(node.target):
            return False
        tensor = _written(node)
        return all(
            other.op == "call_function"
            and (_written(other) is tensor or not self._read_later(other, node))
            for other in self.groups[tensor]
        )

    def _read_later(self, other: fx.Node, node: fx.Node) -> bool:
        """Whether a value that was there before a write is read after it."""
        if self.place[other] > self.place[node]:
            return False
        return any(self.place[user] > self.place[node] for user in other.users)


def _writes_first(target: Any) -> bool:
    """Whether an operator writes into its first argument, and into no other."""
    places = [
        place
        for place, argument in enumerate(op_arguments(target))
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return places == [0]


def _written(node: fx.Node) -> fx.Node:
    """The node that made the tensor which a node returns after writing into it; itself if it writes
    nothing."""
    while isinstance(node.target, OpOverload) and _writes_first(node.target):
        source = node.args[0]
        if not isinstance(source, fx.Node):
            break
        node = source
    return node


def _groups(graph: fx.Graph) -> Groups:
    found: Groups = {}
    for node in graph.nodes:
        group = {node}
        for source in _shared(node):
            if tensors_of(source):
                group |= found[source]
        for member in group:
            found[member] = group
    return found


def _shared(node: fx.Node) -> list[fx.Node]:
    """The nodes in whose memory the value of another may lie."""
    target: Any = node.target
    if node.op != "call_function" or target in NEW:
        return []
    if not says_what_it_shares(target):
        return node.all_input_nodes
    table = op_arguments(target)
    given = {argument.name: value for argument, value in zip(table, node.args, strict=False)}
    given |= node.kwargs
    shared = [given.get(argument.name) for argument in table if argument.alias_info is not None]
    return [leaf for leaf in pytree.tree_leaves(shared) if isinstance(leaf, fx.Node)]
