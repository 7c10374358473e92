"""Digests of what results belong to: models, images and labels."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from boundlab.graph.graph import op_name
from boundlab.net import Net
from boundlab.storage.digests import digest


def fingerprint(*things: Net | Tensor) -> str:
    """A digest that changes with the values of tensors, and with the graph and the parameters of a
    net."""
    return digest(part for thing in things for part in _parts(thing))


def _parts(thing: Net | Tensor) -> Iterator[Tensor | str]:
    if isinstance(thing, Net):
        yield from _parts_of_net(thing)
    else:
        yield thing


def _parts_of_net(net: Net) -> Iterator[Tensor | str]:
    for node in net.graph.nodes.values():
        yield f"{node.name} {op_name(node.op)} {node.args} {dict(node.kwargs)} {node.output}\n"
    for name, value in sorted(net.reader.parameters().items()):
        yield name
        if isinstance(value, Tensor):
            yield value
