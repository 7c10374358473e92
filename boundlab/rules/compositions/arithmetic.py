"""Quotients, interpolation, sums of products with factors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition


@composition(
    aten.div.Tensor,
    aten.div.Scalar,
    aten.true_divide.Tensor,
    aten.true_divide.Scalar,
    aten.divide.Tensor,
)
def div(x: Any, y: Any) -> Tensor:
    if isinstance(y, Tensor):
        return x * torch.reciprocal(y)
    largest, y = _precise(y, x)
    # in two steps: the quotient may be finite where 1 / y is not
    if y != 0 and abs(1 / y) > largest:
        return x * (1 / (y * BLOCK)) * BLOCK
    return x * (math.copysign(math.inf, y) if y == 0 else 1 / y)


BLOCK = 2.0**64


def _precise(y: float, x: Tensor) -> tuple[float, float]:
    """The largest number of the type that x is divided in, and y as a number of that type."""
    kind = np.float64 if x.dtype == torch.float64 else np.float32
    with np.errstate(over="ignore"):
        return float(np.finfo(kind).max), float(kind(y))


@composition(aten.div.Scalar_mode, aten.divide.Tensor_mode, aten.divide.Scalar_mode)
def div_mode(x: Any, y: Any, *, rounding_mode: str | None = None) -> Tensor:
    return (
        div(x, y)
        if rounding_mode is None
        else torch.div(x, _like(y, x), rounding_mode=rounding_mode)
    )


def _like(y: Any, x: Tensor) -> Tensor:
    """A number as a tensor of x's type."""
    return y if isinstance(y, Tensor) else torch.full((), y, dtype=x.dtype, device=x.device)


@composition(aten.floor_divide.default)
def floor_divide(x: Tensor, y: Any) -> Tensor:
    return torch.div(x, _like(y, x), rounding_mode="floor")


@composition(aten.addmm.default)
def addmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * bias + alpha * torch.mm(x, y)


@composition(aten.baddbmm.default)
def baddbmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * bias + alpha * torch.bmm(x, y)


@composition(aten.addmv.default)
def addmv(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * bias + alpha * torch.mv(x, y)


@composition(aten.addcmul.default)
def addcmul(x: Tensor, y: Tensor, z: Tensor, *, value: float = 1) -> Tensor:
    return x + value * (y * z)


@composition(aten.addcdiv.default)
def addcdiv(x: Tensor, y: Tensor, z: Tensor, *, value: float = 1) -> Tensor:
    return x + value * (y * torch.reciprocal(z))


@composition(aten.lerp.Scalar)
def lerp(x: Tensor, y: Tensor, weight: float) -> Tensor:
    return (1 - weight) * x + weight * y


@composition(aten.lerp.Tensor)
def lerp_tensor(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """From the nearer end, as torch does: x + (y - x) is not y if x is much larger."""
    return torch.where(weight.abs() < 0.5, x + weight * (y - x), y - (1 - weight) * (y - x))


@composition(aten.bilinear.default)
def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    inner = torch.matmul(x.unsqueeze(-2).unsqueeze(-2), weight).squeeze(-2)  # (..., out, in2)
    result = (inner * y.unsqueeze(-2)).sum(-1)
    return result if bias is None else result + bias


@composition(aten.vdot.default)
def vdot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum()


@composition(aten._weight_norm.default)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    dims = (
        tuple(d for d in range(v.dim()) if d != dim % v.dim())
        if dim != -1
        else tuple(range(v.dim()))
    )
    return v * (g * torch.rsqrt((v**2).sum(dims, True)))


@composition(aten.prod.dim_int)
def prod(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    factors = list(x.unbind(dim))
    if not factors:
        return torch.ones_like(x.sum(dim, keepdim))
    while len(factors) > 1:  # a balanced tree
        pairs = [a * b for a, b in zip(factors[::2], factors[1::2], strict=False)]
        factors = pairs + factors[len(pairs) * 2 :]
    return factors[0].unsqueeze(dim) if keepdim else factors[0]
