"""einsum."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from boundlab.compat.private import pytree
from boundlab.errors import UnsupportedOperator
from boundlab.graph.graph import Ref
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import AffineMap, Relaxation
from boundlab.rules.bilinear import Bilinear
from boundlab.rules.registry import Call, aten, register


@dataclass(frozen=True, eq=False)
class Einsum:
    """einsum: affine with one perturbed operand, a sum of products with two."""

    kind: str = "bilinear"

    def nonlinear(self, call: Call) -> bool:
        return len(call.inputs) > 1

    def _operands(self, call: Call) -> tuple[str, list[Any]]:
        (equation, operands, *_), _ = call.arguments
        return equation, list(operands)

    def _pair(self, call: Call) -> tuple[Bilinear, Call]:
        """The product of the two perturbed operands as a call of a bilinear operator of its own."""
        equation, operands = self._operands(call)
        if (
            len(operands) != 2
            or "." in equation
            or any(
                len(set(t)) < len(t) for t in equation.replace(" ", "").split("->")[0].split(",")
            )
        ):
            raise UnsupportedOperator(
                f"{call.node}: einsum with two perturbed operands needs exactly two, without '...' "
                "or repeated indices"
            )
        terms = equation.replace(" ", "")
        inputs, _, result = terms.partition("->")
        left, right = inputs.split(",")
        if "->" not in terms:
            result = "".join(
                sorted(letter for letter in set(left + right) if (left + right).count(letter) == 1)
            )
        rule = Bilinear(lambda *_, **__: (left, right, result), is_plain=False)
        swapped = {letter: i for i, letter in enumerate(dict.fromkeys(left + right))}
        low = str.maketrans({letter: string.ascii_lowercase[i] for letter, i in swapped.items()})
        left, right, result = left.translate(low), right.translate(low), result.translate(low)
        return rule, call

    def interval(self, call: Call) -> Interval:
        if self.nonlinear(call):
            rule, _ = self._pair(call)
            _, operands = self._operands(call)
            return rule.interval(_as_pair(call, operands))
        function = call.bind()
        absolute = call.bind(constant=lambda leaf: leaf.abs() if isinstance(leaf, Tensor) else leaf)
        (x,) = call.inputs
        centre, radius = function(x.centre), absolute(x.radius)
        return Interval(centre - radius, centre + radius)

    def relax(self, call: Call) -> Relaxation:
        if self.nonlinear(call):
            rule, _ = self._pair(call)
            _, operands = self._operands(call)
            return rule.relax(_as_pair(call, operands))
        absolute = call.bind(constant=lambda leaf: leaf.abs() if isinstance(leaf, Tensor) else leaf)
        return AffineMap(call.bind(), absolute, call.inputs)


def _as_pair(call: Call, operands: list[Any]) -> Call:
    """The call of a function of the two operands alone."""
    leaves, tree = pytree.tree_flatten((tuple(operands), {}))
    return Call(
        call.node, tuple(leaves), tuple(map(Ref, call.names)), tree, (0, 1), call.names, call.slopes
    )


register(aten.einsum, rule=Einsum())
