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


def fuse(node: Node, nodes: Mapping[str, Node]) -> Node:
    """The node itself, or one that computes the same from an earlier one."""
    argument = None
    if node.op is aten.mul.Tensor:
        argument, op = _softsign(node, nodes), softsign
    elif node.op is aten.sub.Tensor:
        argument, op = _tanhshrink(node, nodes), tanhshrink
    return node if argument is None else replace(node, op=op, args=(argument,), kwargs={})


def _made_by(argument: object, op: object, nodes: Mapping[str, Node]) -> Node | None:
    found = nodes.get(argument.name) if isinstance(argument, Ref) else None
    return found if found is not None and found.op is op and found.output is None else None


def _softsign(node: Node, nodes: Mapping[str, Node]) -> Ref | None:
    x, factor = node.args
    inverse = _made_by(factor, aten.reciprocal.default, nodes)
    total = None if inverse is None else _made_by(inverse.args[0], aten.add.Tensor, nodes)
    if total is None or total.kwargs or total.args[1] != 1:
        return None
    size = _made_by(total.args[0], aten.abs.default, nodes)
    return x if size is not None and isinstance(x, Ref) and size.args[0] == x else None


def _tanhshrink(node: Node, nodes: Mapping[str, Node]) -> Ref | None:
    x, bent = node.args
    tanh = _made_by(bent, aten.tanh.default, nodes)
    return (
        x
        if tanh is not None and isinstance(x, Ref) and tanh.args[0] == x and not node.kwargs
        else None
    )


def one_part(node: Node) -> Node:
    """A part of a value that is taken apart, read as that part alone: other parts then cost
    nothing, nor do their gradients."""
    k = node.output
    if k is None or node.op not in (
        aten.unbind.int,
        aten.split.Tensor,
        aten.split_with_sizes.default,
    ):
        return node
    x, *rest = node.args
    part = replace(node, kwargs={}, output=None)
    if node.op is aten.unbind.int:
        return replace(
            part, op=aten.select.int, args=(x, rest[0] if rest else node.kwargs.get("dim", 0), k)
        )
    sizes, dim = rest[0], rest[1] if len(rest) > 1 else node.kwargs.get("dim", 0)
    every: list[Any] = [sizes] * (k + 1) if node.op is aten.split.Tensor else list(sizes)
    if not all(isinstance(size, int) for size in every):  # a size that is itself computed
        return node
    first = sum(every[:k])
    return replace(part, op=aten.slice.Tensor, args=(x, dim, first, first + every[k]))
