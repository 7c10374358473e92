"""What every front end does with a graph once it is read: what only copies is dropped, and what the
outputs do not need; some operators are written in one way only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from boundlab.capture.patterns import fuse, one_part
from boundlab.compat.private import pytree
from boundlab.graph.graph import Graph, Node, Ref
from boundlab.rules.registry import IDENTITIES, aten
from boundlab.rules.replaced import READS_NAN
from boundlab.rules.softmax import softmax_of_numbers

VIEWS = frozenset((aten.view.default, aten._unsafe_view.default))
EVERYTHING = 2**63 - 1
"""The end of a slice that has none."""


def simplify(graph: Graph) -> Graph:
    """A graph with the same outputs: copies and unneeded nodes are dropped, products of a node with
    itself are squares, views are reshapes, and known patterns are one node."""
    same: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    for given in graph.nodes.values():
        node = _renamed(given, same)
        if _only_copies(node):
            same[node.name] = node.args[0].name
        else:
            nodes[node.name] = fuse(one_part(_as_reshape(_as_square(node))), nodes)
    outputs = tuple(_renamed_leaf(output, same) for output in graph.outputs)
    modules = {
        node.origin.module: same.get(node.name, node.name)
        for node in graph.nodes.values()
        if node.origin.module
    }
    return _softmax_behind(_needed(replace(graph, nodes=nodes, outputs=outputs, modules=modules)))


def _softmax_behind(graph: Graph) -> Graph:
    """The graph with every softmax that reaches an output through nan_to_num alone, which says what
    NaN becomes, as one of numbers."""
    exposed: set[str] = set()
    pending = [output.name for output in graph.outputs if isinstance(output, Ref)]
    while pending:
        name = pending.pop()
        if name not in exposed:
            exposed.add(name)
            node = graph.nodes[name]
            pending += [] if node.op in READS_NAN else node.inputs
    behind = {
        name: replace(node, op=softmax_of_numbers)
        for name, node in graph.nodes.items()
        if node.op is aten._softmax.default and name not in exposed
    }
    return replace(graph, nodes={**graph.nodes, **behind})


def _renamed(node: Node, same: Mapping[str, str]) -> Node:
    """The node with every reference to a copy replaced by one to what it copies."""
    args, kwargs = pytree.tree_map(
        lambda leaf: _renamed_leaf(leaf, same), (node.args, dict(node.kwargs))
    )
    return replace(node, args=args, kwargs=kwargs)


def _renamed_leaf(leaf: object, same: Mapping[str, str]) -> object:
    if isinstance(leaf, Ref) and leaf.name in same:
        return Ref(same[leaf.name])
    return leaf


def _only_copies(node: Node) -> bool:
    copies = node.op in IDENTITIES or _takes_all(node)
    return copies and isinstance(node.args[0], Ref)


def _takes_all(node: Node) -> bool:
    """Whether a node is a slice of everything, as ``x[:, 0]`` leaves one behind."""
    if node.op is not aten.slice.Tensor or node.kwargs:
        return False
    given = list(node.args[2:])
    defaults: list[object] = [None, None, 1]
    start, end, step = given + defaults[len(given) :]
    is_whole = end is None or (isinstance(end, int) and end == EVERYTHING)
    return start in (None, 0) and is_whole and step == 1


def _as_square(node: Node) -> Node:
    """A product of a node with itself as its square, which has tighter bounds."""
    if node.op is not aten.mul.Tensor:
        return node
    x, y = node.args
    if not isinstance(x, Ref) or x != y:
        return node
    return replace(node, op=aten.pow.Tensor_Scalar, args=(x, 2), kwargs={})


def _as_reshape(node: Node) -> Node:
    """A view as a reshape: copies are gone, so strides may not allow a view."""
    if node.op not in VIEWS:
        return node
    return replace(node, op=aten.reshape.default)


def _needed(graph: Graph) -> Graph:
    """The graph without nodes that no output depends on; inputs stay."""
    ends = tuple(output.name for output in graph.outputs if isinstance(output, Ref))
    needed = graph.ancestors(ends) | set(graph.inputs)
    kept = {name: node for name, node in graph.nodes.items() if name in needed}
    parameters = {name: path for name, path in graph.parameters.items() if name in kept}
    constants = {name: value for name, value in graph.constants.items() if name in kept}
    return replace(graph, nodes=kept, parameters=parameters, constants=constants)
