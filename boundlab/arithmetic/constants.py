"""Constants that a model computes: the scale of a batch norm, a normalised weight.

They do not depend on what is perturbed, but a machine rounds them, and so does the analysis. Each
is known up to an error, found by interval arithmetic; operators that read it have room for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import DOUBLE, Arithmetic
from boundlab.arithmetic.double import check_whole, in_double
from boundlab.arithmetic.rounded import RoundedRule, magnitudes
from boundlab.arithmetic.table import COUNTED, SOURCES
from boundlab.errors import UnsupportedOperator
from boundlab.graph.graph import Node, Ref, op_name
from boundlab.relaxations.interval import Interval
from boundlab.rules.registry import SHAPE_ONLY, Call, aten, find_rule


@dataclass(eq=False)
class Constants:
    """How far constants may be from the values that are known of them, by node; exact ones are not
    there. nodes: how many nodes the graph has."""

    arithmetic: Arithmetic
    nodes: int
    errors: dict[str, Tensor] = field(default_factory=dict)

    def evaluate(self, node: Node, values: Callable[[str], Any]) -> Any:
        """The value of a node whose arguments are constants; notes how far it may be off."""
        value = node.call(*node.arguments(values))
        if _is_of_default_type(value):
            if self.arithmetic.executed == DOUBLE:
                raise UnsupportedOperator(
                    f"{node}: it makes numbers in torch's default type, not in double precision; "
                    'with arithmetic="float64" give it a dtype'
                )
            if not _is_exact(node) and node.packet is not aten.where:
                values = _numbers_of(values)
                value = node.call(*node.arguments(values))
        value = in_double(value)
        self._check(node, value)
        if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
            return value
        if _is_exact(node):
            return value
        call = Call.of(node, self._known(values))
        rule = self._rule(node)
        if call.positions:
            interval = rule.interval(call)
            value = interval.centre
            error = torch.maximum(interval.upper - value, value - interval.lower)
            error = error + 4 * DOUBLE.unit * magnitudes(interval)
        else:
            found = rule.error(call, value, rule.size(call))
            if found is None:
                return value
            error = found
        error = error.nan_to_num(torch.inf, torch.inf)  # nothing is known of what overflows
        if bool((error > 0).any()):
            self.errors[node.name] = error.expand(value.shape)
        return value

    def _rule(self, node: Node) -> RoundedRule:
        try:
            rule = find_rule(node)
        except UnsupportedOperator:
            raise UnsupportedOperator(
                f"{node}: nothing is known of what the operator {op_name(node.op)} rounds, which "
                "computes a constant of the model; compute it beforehand, or leave arithmetic=... "
                "out"
            ) from None
        return RoundedRule.of(node, rule, self.arithmetic, self.nodes)

    def _check(self, node: Node, value: Any) -> None:
        """Refuse what a rounding error may have decided: a comparison, a place or a whole number
        made of constants that are off; and whole numbers that the format does not hold."""
        if not isinstance(value, Tensor) or value.is_floating_point():
            return
        if any(name in self.errors for name in node.inputs) and node.op not in SHAPE_ONLY:
            raise UnsupportedOperator(
                f"{node}: it compares, counts or cuts off a constant that the model computes, and "
                "rounded; leave arithmetic=... out"
            )
        check_whole(str(node), value, self.arithmetic)

    def _known(self, values: Callable[[str], Any]) -> Callable[[str], object]:
        """Arguments that are off as intervals."""

        def lookup(name: str) -> object:
            error = self.errors.get(name)
            value = values(name)
            if error is None:
                return value
            return Interval(value - error, value + error)

        return lookup

    def of(self, call: Call) -> dict[int, Tensor]:
        """The errors of the constants that a call reads, by their places."""
        if not self.errors:
            return {}
        named = ((place, _name(ref)) for place, ref in enumerate(call.refs))
        return {place: self.errors[name] for place, name in named if name in self.errors}


def _is_of_default_type(value: Any) -> bool:
    """Whether a value was computed in another type than double precision: of whole numbers, which
    torch takes for numbers of its default type."""
    if not isinstance(value, Tensor):
        return False
    return value.is_floating_point() and value.dtype != DOUBLE.dtype


def _numbers_of(values: Callable[[str], Any]) -> Callable[[str], Any]:
    """Whole numbers as numbers of double precision."""

    def lookup(name: str) -> Any:
        value = values(name)
        if isinstance(value, Tensor) and not value.is_floating_point():
            return value.to(DOUBLE.dtype)
        return value

    return lookup


def _name(ref: object) -> str:
    if isinstance(ref, Ref):
        return ref.name
    return ""


def _is_exact(node: Node) -> bool:
    """Whether a constant is made without arithmetic."""
    if node.op in SOURCES:
        return True
    if node.op in COUNTED:
        return all(not isinstance(arg, float) or arg.is_integer() for arg in node.args)
    return False
