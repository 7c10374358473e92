"""A call of an operator that is linear in each of two arguments, with its arguments bound."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval, Value
from boundlab.rules.arguments import Arguments, parameters
from boundlab.rules.registry import Call

Operand = Interval | Tensor | float
"""A side of a product: an Interval if it is perturbed, else a tensor or number."""
Letters = tuple[str, str, str]
"""The indices of the two arguments and of the result, one letter a dimension."""
Indices = Callable[[Value, Value], Letters]
"""From the two arguments to their letters."""


@dataclass(frozen=True, eq=False)
class Product:
    """B(x, y) + bias, as ``op(x, y, *rest)`` or ``op(x, y, bias, *rest)``.

    indices: the letters of x, y and the result, if B is a sum of products over indices; None: it is
    not (a convolution).
    """

    call: Call
    x: Operand
    y: Operand
    bias: Value | None
    indices: Indices | None
    has_bias: bool = False

    @staticmethod
    def of(call: Call, indices: Indices | None, has_bias: bool) -> Product:
        x, y = _as_numbers(call[0], call[1])
        bias = None
        if has_bias:
            bias = call["bias"]
        return Product(call, x, y, bias, indices, has_bias)

    @property
    def both(self) -> bool:
        """Whether both sides are perturbed."""
        return isinstance(self.x, Interval) and isinstance(self.y, Interval)

    @property
    def intervals(self) -> tuple[Interval, Interval]:
        """Both sides, of which both are perturbed."""
        assert isinstance(self.x, Interval) and isinstance(self.y, Interval)
        return self.x, self.y

    @property
    def is_elementwise(self) -> bool:
        return self.indices is elementwise

    @cached_property
    def letters(self) -> Letters:
        assert self.indices is not None
        return self.indices(*self.intervals)

    @cached_property
    def space(self) -> str:
        """The letters of all elementary products, those of the result first."""
        x, y, result = self.letters
        return "".join(dict.fromkeys(result + x + y))

    @cached_property
    def _rest(self) -> Arguments:
        """The arguments behind x, y and the bias."""
        args, kwargs = self.call.arguments
        count = 2 + self.has_bias
        if not kwargs:
            return args[count:], kwargs
        table = parameters(self.call.node.op)
        first = {table[place].name for place in range(count)}
        return args[count:], {name: v for name, v in kwargs.items() if name not in first}

    def apply(self, u: Tensor | float, v: Tensor | float, bias: Tensor | None) -> Tensor:
        """B(u, v) + bias, with the settings of the call."""
        args, kwargs = self._rest
        if self.has_bias:
            args = (bias, *args)
        result: Tensor = self.call.node.call((u, v, *args), kwargs)
        return result

    def times(self, u: Tensor | float, v: Tensor | float) -> Tensor:
        """B(u, v)."""
        return self.apply(u, v, None)

    def spread_bias(self, bias: Tensor) -> Tensor:
        """A bias as the operator adds it, in the shape of the result."""
        return self.apply(zeros_like(self.x), zeros_like(self.y), bias)

    @property
    def constant(self) -> Tensor | float:
        """The bias in the shape of the result if it is constant, else 0."""
        if isinstance(self.bias, Tensor):
            return self.spread_bias(self.bias)
        return 0.0

    def with_bias(self, found: Interval) -> Interval:
        """The interval of B(x, y) with that of the bias added."""
        if self.bias is None:
            return found
        if isinstance(self.bias, Interval):
            lower, upper = self.spread_bias(self.bias.lower), self.spread_bias(self.bias.upper)
        else:
            lower = upper = self.spread_bias(self.bias)
        return Interval(found.lower + lower, found.upper + upper)

    def with_constant(self, place: int, value: Tensor) -> Call:
        """The call with side ``place`` at a constant, the other still perturbed, and no other
        argument perturbed."""
        call = self.call
        kept = call.positions[1 - place]
        leaves = list(call.leaves)
        for position in call.positions:
            if position != kept:
                leaves[position] = None
        leaves[call.positions[place]] = value
        return replace(
            call, leaves=tuple(leaves), positions=(kept,), names=(call.names[1 - place],)
        )


def zeros_like(v: Operand) -> Tensor:
    """Zeros of the shape of a side."""
    if isinstance(v, Interval):
        return torch.zeros_like(v.lower)
    return torch.zeros_like(torch.as_tensor(v))


def _as_numbers(x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """The sides, with truth values that are perturbed as the numbers 0 and 1 if one of the sides is
    a number."""
    truths = [isinstance(v, Interval) and not v.dtype.is_floating_point for v in (x, y)]
    if not any(truths):
        return x, y
    for v in (x, y):
        if isinstance(v, (Interval, Tensor)) and v.dtype.is_floating_point:
            return _converted(x, v.dtype), _converted(y, v.dtype)
    return x, y


def _converted(v: Operand, dtype: torch.dtype) -> Operand:
    if not isinstance(v, Interval) or v.dtype.is_floating_point:
        return v
    return Interval(v.lower.to(dtype), v.upper.to(dtype))


# -- indices ---------------------------------------------------------------------------------------


def elementwise(x: Value, y: Value) -> Letters:
    dims = max(len(x.shape), len(y.shape))
    result = string.ascii_lowercase[:dims]
    return result[dims - len(x.shape) :], result[dims - len(y.shape) :], result


def matmul(x: Value, y: Value) -> Letters:
    """(..., n, k) and (..., k, m), or (k) for either."""
    m, n = len(x.shape), len(y.shape)
    batch = string.ascii_lowercase[: max(m, n, 2) - 2]
    row, column = _unless_vector("y", x), _unless_vector("z", y)
    left = batch[len(batch) - max(m - 2, 0) :] + row + "x"
    right = batch[len(batch) - max(n - 2, 0) :] + "x" + column
    return left, right, batch + row + column


def linear(x: Value, y: Value) -> Letters:
    """(..., k) and (m, k) or (k)."""
    batch = string.ascii_lowercase[: len(x.shape) - 1]
    out = _unless_vector("z", y)
    return batch + "x", out + "x", batch + out


def _unless_vector(letter: str, x: Value) -> str:
    """The letter of a dimension that vectors do not have."""
    if len(x.shape) > 1:
        return letter
    return ""


def inner(x: Value, y: Value) -> Letters:
    """The last dimensions of both are summed over."""
    left = string.ascii_lowercase[: len(x.shape) - 1]
    right = string.ascii_lowercase[12 : 11 + len(y.shape)]
    return left + "z", right + "z", left + right


def outer(x: Value, y: Value) -> Letters:
    return "a", "b", "ab"
