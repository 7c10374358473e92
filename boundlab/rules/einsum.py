"""einsum."""

from __future__ import annotations

import string
from dataclasses import dataclass

from torch import Tensor

from boundlab.errors import UnsupportedOperator
from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.mccormick import McCormick
from boundlab.rules.product import Product
from boundlab.rules.registry import Call, Rule, aten, register


@dataclass(frozen=True, eq=False)
class Einsum(Rule):
    """einsum: affine with one perturbed operand, a sum of products with two."""

    kind: str = "bilinear"

    def nonlinear(self, call: Call) -> bool:
        return len(call.inputs) > 1

    def _pair(self, call: Call) -> McCormick:
        """The product of the two perturbed operands, with the letters of the equation."""
        terms, operands = call["equation"].replace(" ", ""), call["tensors"]
        inputs, arrow, result = terms.partition("->")
        repeated = any(len(set(part)) < len(part) for part in inputs.split(","))
        if len(operands) != 2 or "." in terms or repeated:
            raise UnsupportedOperator(
                f"{call.node}: einsum with two perturbed operands needs exactly two, without '...' "
                "or repeated indices"
            )
        left, right = inputs.split(",")
        if not arrow:
            every = left + right
            result = "".join(sorted(letter for letter in set(every) if every.count(letter) == 1))
        # lower-case letters: backward mode takes a capital for the rows
        lower = dict(zip(dict.fromkeys(left + right), string.ascii_lowercase, strict=False))
        table = str.maketrans(lower)
        letters = left.translate(table), right.translate(table), result.translate(table)
        x, y = operands
        return McCormick(Product(call, x, y, None, lambda x, y: letters))

    def interval(self, call: Call) -> Interval:
        if self.nonlinear(call):
            return self._pair(call).interval()
        function = call.bind()
        absolute = call.bind(constant=_absolute)
        (x,) = call.inputs
        centre, radius = function(x.centre), absolute(x.radius)
        return Interval(centre - radius, centre + radius)

    def relax(self, call: Call) -> Relaxation:
        if self.nonlinear(call):
            return self._pair(call).relax(0.0)
        return AffineMap(call.bind(), call.bind(constant=_absolute), call.inputs)


def _absolute(leaf: object) -> object:
    if isinstance(leaf, Tensor):
        return leaf.abs()
    return leaf


register(aten.einsum, rule=Einsum())
