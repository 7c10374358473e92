"""Nodes of a graph in an order in which they can be computed, and names of their own for the values
of branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from boundlab.errors import ArgumentError
from boundlab.onnx.table import shortened

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def in_order(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    """Nodes such that each stands behind those that it reads; in the order of the file else."""
    nodes = list(nodes)
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    readers: list[list[int]] = [[] for _ in nodes]
    waits = []
    for place, node in enumerate(nodes):
        needed = {makers[name] for name in _reads(node) if name in makers}
        waits.append(len(needed))
        for maker in needed:
            readers[maker].append(place)
    ready = [place for place, count in enumerate(waits) if not count]
    heapify(ready)
    done = 0
    while ready:
        place = heappop(ready)
        done += 1
        yield nodes[place]
        for reader in readers[place]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, reader)
    if done < len(nodes):
        first = next(node for node, count in zip(nodes, waits, strict=True) if count)
        raise ArgumentError(f"the graph has a circle through {title(first)}")


def _reads(node: NodeProto) -> set[str]:
    """The values that a node reads, those of graphs in its branches included."""
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner = attribute.g
            found |= set().union(*(_reads(one) for one in inner.node)) - _own(inner)
            found |= {one.name for one in inner.output} - _own(inner)
    return found


def _own(graph: GraphProto) -> set[str]:
    """The names that a graph gives."""
    found = {name for one in graph.node for name in one.output if name}
    return found | {one.name for one in graph.initializer}


def title(node: NodeProto) -> str:
    """An operator with the name of its node, or of its first output."""
    name = shortened(node.name or next(iter(node.output), ""))
    operator = shortened(node.op_type)
    return f"{operator} ({name})" if name else operator


def with_own_names(graph: GraphProto, prefix: str) -> GraphProto:
    """A copy of a branch whose own values have a prefix: other branches may name theirs alike."""
    copy = type(graph)()
    copy.CopyFrom(graph)
    _rename(copy, {name: prefix + name for name in _own(graph)})
    return copy


def _rename(graph: GraphProto, names: dict[str, str]) -> None:
    for one in (*graph.initializer, *graph.output):
        one.name = names.get(one.name, one.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                hidden = _own(attribute.g)
                outer = {name: new for name, new in names.items() if name not in hidden}
                _rename(attribute.g, outer)
