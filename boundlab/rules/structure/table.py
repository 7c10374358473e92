"""The table of structures, by operator."""

from __future__ import annotations

from collections.abc import Callable

from boundlab.compat.private import OpOverload, is_pointwise
from boundlab.graph.graph import Node, Operator, op_name
from boundlab.rules.registry import RULES
from boundlab.rules.structure.forms import pointwise, samples_first
from boundlab.rules.structure.site import Structure, Unknown

STRUCTURES: dict[object, Structure] = {}


def structure(*ops: Operator) -> Callable[[Structure], Structure]:
    """Decorator: the structure of operators (packets, overloads or functions of our own)."""

    def decorate(function: Structure) -> Structure:
        for op in ops:
            assert op not in STRUCTURES, op
            STRUCTURES[op] = function
        return function

    return decorate


def find_structure(node: Node) -> Structure:
    """The structure of a node's operator; what torch itself marks as pointwise needs no row in the
    table."""
    op, packet = node.op, node.packet
    found = STRUCTURES.get(op) or STRUCTURES.get(packet)
    if found is not None:
        return found
    if is_pointwise(op):
        return pointwise
    own = not isinstance(op, OpOverload) or op.namespace != "aten"
    if own and (op in RULES or packet in RULES):
        return samples_first
    raise Unknown(f"nothing is known about how {op_name(op)} treats the samples of a batch")
