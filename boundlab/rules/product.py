"""A call of an operator that is linear in each of two arguments, with its arguments bound."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval, lower_of
from boundlab.rules.arguments import parameters
from boundlab.rules.registry import Call

Letters = tuple[str, str, str]
"""The indices of the two arguments and of the result, one letter a dimension."""
Indices = Callable[[Any, Any], Letters]
"""From the two arguments to their letters."""


@dataclass(frozen=True, eq=False)
class Product:
    """B(x, y) + bias, as ``op(x, y, *rest)`` or ``op(x, y, bias, *rest)``.

    x, y: an Interval if perturbed, else a tensor or number. bias: an Interval, a tensor or None.
    indices: the letters of x, y and the result, if B is a sum of products over indices; None: it is
    not (a convolution).
    """

    call: Call
    x: Any
    y: Any
    bias: Any
    indices: Indices | None
    has_bias: bool = False

    @staticmethod
    def of(call: Call, indices: Indices | None, has_bias: bool) -> Product:
        x, y = _as_numbers(call[0], call[1])
        bias = call["bias"] if has_bias else None
        return Product(call, x, y, bias, indices, has_bias)

    @property
    def both(self) -> bool:
        """Whether both sides are perturbed."""
        return isinstance(self.x, Interval) and isinstance(self.y, Interval)

    @property
    def is_elementwise(self) -> bool:
        return self.indices is elementwise

    @cached_property
    def letters(self) -> Letters:
        assert self.indices is not None
        return self.indices(self.x, self.y)

    @cached_property
    def space(self) -> str:
        """The letters of all elementary products, those of the result first."""
        x, y, result = self.letters
        return "".join(dict.fromkeys(result + x + y))

    @cached_property
    def _rest(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments behind x, y and the bias."""
        args, kwargs = self.call.arguments
        count = 3 if self.has_bias else 2
        table = parameters(self.call.node.op)  # type: ignore[arg-type]
        first = {table[place][0] for place in range(count)}
        return args[count:], {name: v for name, v in kwargs.items() if name not in first}

    def apply(self, u: Any, v: Any, bias: Any) -> Tensor:
        """B(u, v) + bias, with the settings of the call."""
        args, kwargs = self._rest
        first = (u, v, bias) if self.has_bias else (u, v)
        return self.call.node.call((*first, *args), kwargs)  # type: ignore[no-any-return]

    def times(self, u: Any, v: Any) -> Tensor:
        """B(u, v)."""
        return self.apply(u, v, None)

    def spread_bias(self, bias: Tensor) -> Tensor:
        """A bias as the operator adds it, in the shape of the result."""
        x, y = (torch.zeros_like(lower_of(v)) for v in self.sides)
        return self.apply(x, y, bias)

    @property
    def sides(self) -> tuple[Any, Any]:
        return self.x, self.y

    @property
    def constant(self) -> Tensor | float:
        """The bias in the shape of the result if it is constant, else 0."""
        return self.spread_bias(self.bias) if isinstance(self.bias, Tensor) else 0.0

    def with_bias(self, found: Interval) -> Interval:
        """The interval of B(x, y) with that of the bias added."""
        if isinstance(self.bias, Interval):
            return Interval(
                found.lower + self.spread_bias(self.bias.lower),
                found.upper + self.spread_bias(self.bias.upper),
            )
        if isinstance(self.bias, Tensor):
            bias = self.spread_bias(self.bias)
            return Interval(found.lower + bias, found.upper + bias)
        return found

    def with_constant(self, place: int, value: Tensor) -> Call:
        """The call with side ``place`` at a constant, the other still perturbed, and no other
        argument perturbed."""
        call = self.call
        leaves, kept = list(call.leaves), call.positions[1 - place]
        for k, position in enumerate(call.positions):
            if position != kept:
                leaves[position] = value if k == place else None
        return replace(
            call, leaves=tuple(leaves), positions=(kept,), names=(call.names[1 - place],)
        )


def _as_numbers(x: Any, y: Any) -> tuple[Any, Any]:
    """The sides, with truth values that are perturbed as the numbers 0 and 1 if one of the sides is
    a number."""
    truths = [isinstance(v, Interval) and not v.dtype.is_floating_point for v in (x, y)]
    if not any(truths):
        return x, y
    for v in (x, y):
        if isinstance(v, (Interval, Tensor)) and v.dtype.is_floating_point:
            return _converted(x, v.dtype), _converted(y, v.dtype)
    return x, y


def _converted(v: Any, dtype: torch.dtype) -> Any:
    if not isinstance(v, Interval) or v.dtype.is_floating_point:
        return v
    return Interval(v.lower.to(dtype), v.upper.to(dtype))


# -- indices ---------------------------------------------------------------------------------------


def elementwise(x: Any, y: Any) -> Letters:
    dims = max(len(x.shape), len(y.shape))
    result = string.ascii_lowercase[:dims]
    return result[dims - len(x.shape) :], result[dims - len(y.shape) :], result


def matmul(x: Any, y: Any) -> Letters:
    m, n = len(x.shape), len(y.shape)
    batch = string.ascii_lowercase[: max(m, n, 2) - 2]
    row, column = ("y" if m > 1 else ""), ("z" if n > 1 else "")
    left = batch[len(batch) - max(m - 2, 0) :] + row + "x"
    right = batch[len(batch) - max(n - 2, 0) :] + "x" + column
    return left, right, batch + row + column


def linear(x: Any, y: Any) -> Letters:
    batch = string.ascii_lowercase[: len(x.shape) - 1]
    out = "z" if len(y.shape) > 1 else ""
    return batch + "x", out + "x", batch + out


def inner(x: Any, y: Any) -> Letters:
    """The last dimensions of both are summed over."""
    left = string.ascii_lowercase[: len(x.shape) - 1]
    right = string.ascii_lowercase[12 : 11 + len(y.shape)]
    return left + "z", right + "z", left + right


def outer(x: Any, y: Any) -> Letters:
    return "a", "b", "ab"
