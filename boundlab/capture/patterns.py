"""Functions that PyTorch writes out in Python, read as one node again: as a whole they have tighter
lines.

softsign(x)   = x / (1 + |x|), which arrives as x * reciprocal(|x| + 1)
tanhshrink(x) = x - tanh(x)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from boundlab.graph.graph import Node, Ref
from boundlab.rules.elementwise import softsign, tanhshrink
from boundlab.rules.registry import aten

TAKEN_APART = (aten.unbind.int, aten.split.Tensor, aten.split_with_sizes.default)


def fuse(node: Node, nodes: Mapping[str, Node]) -> Node:
    """The node itself, or one that computes the same from an earlier one."""
    if node.op is aten.mul.Tensor and _is_softsign(node, nodes):
        return replace(node, op=softsign, args=node.args[:1], kwargs={})
    if node.op is aten.sub.Tensor and _is_tanhshrink(node, nodes):
        return replace(node, op=tanhshrink, args=node.args[:1], kwargs={})
    return node


def _made_by(argument: object, op: object, nodes: Mapping[str, Node]) -> Node | None:
    """The node that an argument refers to, if it is a call of that operator."""
    found = nodes.get(argument.name) if isinstance(argument, Ref) else None
    if found is None or found.op is not op or found.output is not None:
        return None
    return found


def _is_softsign(node: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether a product is ``x * reciprocal(|x| + 1)``."""
    x, factor = node.args
    inverse = _made_by(factor, aten.reciprocal.default, nodes)
    if inverse is None:
        return False
    total = _made_by(inverse.args[0], aten.add.Tensor, nodes)
    if total is None or total.kwargs or total.args[1] != 1:
        return False
    size = _made_by(total.args[0], aten.abs.default, nodes)
    return size is not None and isinstance(x, Ref) and size.args[0] == x


def _is_tanhshrink(node: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether a difference is ``x - tanh(x)``."""
    x, subtrahend = node.args
    tanh = _made_by(subtrahend, aten.tanh.default, nodes)
    return tanh is not None and isinstance(x, Ref) and tanh.args[0] == x and not node.kwargs


def one_part(node: Node) -> Node:
    """A part of a value that is taken apart, read as that part alone: other parts then cost
    nothing, nor do their gradients."""
    number = node.output
    if number is None or node.op not in TAKEN_APART:
        return node
    part = replace(node, kwargs={}, output=None)
    if node.op is aten.unbind.int:
        x, dim = _with_default_dim(node, place=1)
        return replace(part, op=aten.select.int, args=(x, dim, number))
    x, sizes, dim = _with_default_dim(node, place=2)
    if node.op is aten.split.Tensor:  # into parts of one size
        sizes = [sizes] * (number + 1)
    every = list(sizes)
    if not all(isinstance(size, int) for size in every):  # a size that is itself computed
        return node
    first = sum(every[:number])
    return replace(part, op=aten.slice.Tensor, args=(x, dim, first, first + every[number]))


def _with_default_dim(node: Node, place: int) -> tuple[Any, ...]:
    """The arguments up to ``place``, where ``dim`` stands if it was given by place."""
    return (*node.args, node.kwargs.get("dim", 0))[: place + 1]
