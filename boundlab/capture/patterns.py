"""Functions that PyTorch writes out in Python, read as one node again: as a whole they have tighter lines.

softsign(x)   = x / (1 + |x|), which arrives as x * reciprocal(|x| + 1)
tanhshrink(x) = x - tanh(x)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from boundlab.graph import Node, Ref
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
    return x if tanh is not None and isinstance(x, Ref) and tanh.args[0] == x and not node.kwargs else None
