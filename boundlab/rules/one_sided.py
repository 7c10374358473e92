"""Products with one perturbed side, which are affine, with the absolute value of the other side as
absolute coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundlab.coefficients.outer import Outer
from boundlab.kernels.reductions import all_finite, spares
from boundlab.kernels.trained_linear import interval_linear, is_trained
from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import constant_lines
from boundlab.relaxations.relaxation import Relaxation, Rows
from boundlab.rules.affine import around
from boundlab.rules.facts import Facts, PerSample
from boundlab.rules.product import Operand, Product, zeros_like
from boundlab.rules.registry import Call, aten


@dataclass(frozen=True, eq=False)
class OneSided:
    """B(x, y) + bias with x or y perturbed, or neither, and perhaps the bias."""

    product: Product
    facts: Facts

    def interval(self) -> Interval:
        """Bound the result by an interval of its shape."""
        p = self.product
        if p.is_elementwise:
            return self._of_factor()
        trained = p.call.node.op is aten.linear.default and is_trained(p.y)
        if not trained or isinstance(p.bias, Interval):
            return around(p.call, p.call.bind(), p.call.bind(self._absolute))
        assert isinstance(p.x, Interval) and isinstance(p.y, Tensor)
        return Interval.around(*interval_linear(*p.x.ball, p.y, p.bias))

    def _of_factor(self) -> Interval:
        """Of one product for each element: the ends are those of the interval."""
        p = self.product
        (v,) = p.call.inputs
        function = p.call.bind()
        ends = function(v.lower), function(v.upper)
        factor = torch.as_tensor(self._factor)
        if not all_finite(factor):  # 1 / 1e-39 is infinite, while x / 1e-39 need not be
            unknown = torch.isinf(factor)
            low, up = torch.minimum(*ends), torch.maximum(*ends)
            return Interval(
                torch.where(unknown, -torch.inf, low), torch.where(unknown, torch.inf, up)
            )
        if spares(factor >= 0):
            return Interval(*ends)
        return Interval(torch.minimum(*ends), torch.maximum(*ends))

    @property
    def _factor(self) -> Tensor | float:
        """The side that is not perturbed."""
        p = self.product
        if not isinstance(p.x, Interval):
            return p.x
        assert not isinstance(p.y, Interval)
        return p.y

    def relax(self) -> Relaxation:
        """Relax the operator by itself: it is affine."""
        p = self.product
        if not all(v.dtype.is_floating_point for v in p.call.inputs):  # a truth value: no slope
            return constant_lines(self.interval(), p.call.inputs)
        return AffineMap(
            p.call.bind(),
            p.call.bind(self._absolute),
            p.call.inputs,
            self.facts.transpose_of(p.call),
            self.facts.constant_of(p.call),
            windows=lambda: self.facts.window_of(p.call),
            unbiased=self._linear_part(),
            per_sample=per_sample(p, self.facts, p.call, p.x),
        )

    def _absolute(self, u: Tensor | float, v: Tensor | float, *rest: Any, **kwargs: Any) -> Tensor:
        """The operator with absolute coefficients, in the operator's arguments."""
        p = self.product
        if isinstance(p.x, Interval):
            v = absolute(v)
        elif isinstance(p.y, Interval):
            u = absolute(u)
        else:  # only the bias moves
            u = zeros_like(u)
        if not isinstance(p.bias, Interval):
            return p.times(u, v)
        if not rest:
            return p.apply(u, v, kwargs["bias"])
        return p.apply(u, v, rest[0])

    def _linear_part(self) -> Callable[[Tensor], Tensor] | None:
        """The operator without its constant bias, if one of x and y is all that moves."""
        p = self.product
        if len(p.call.positions) != 1 or isinstance(p.bias, Interval):
            return None
        factor = self._factor
        if isinstance(p.x, Interval):
            return lambda u: p.times(u, factor)
        return lambda v: p.times(factor, v)


def absolute(value: Tensor | float) -> Tensor | float:
    """|value| of a tensor or number; truth values are not negative."""
    if not isinstance(value, Tensor):
        return abs(value)
    if value.dtype == torch.bool:
        return value
    return value.abs()


def per_sample(
    product: Product, facts: Facts, call: Call, x: Operand
) -> Callable[[Rows], list[Tensor | Outer]] | None:
    """The transpose of a call with the constant argument x, sample by sample, for each of weight
    and bias that the call perturbs."""
    if not isinstance(x, Tensor):
        return None
    parts: list[PerSample] = []
    if isinstance(product.y, Interval):
        if facts.weight_per_sample is None:
            return None
        of_weight = facts.weight_per_sample(call, x, product.y.shape)
        if of_weight is None:
            return None
        parts.append(of_weight)
    if isinstance(product.bias, Interval) and len(call.positions) == len(product.call.positions):
        if facts.bias_per_sample is None:
            return None
        parts.append(facts.bias_per_sample)
    return lambda rows: [part(rows) for part in parts]
