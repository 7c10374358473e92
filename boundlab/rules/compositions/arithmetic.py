"""Quotients, interpolation, sums of products with factors."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition
from boundlab.rules.settings import in_type

BLOCK = 2.0**64


@composition(
    aten.div.Tensor,
    aten.div.Scalar,
    aten.true_divide.Tensor,
    aten.true_divide.Scalar,
    aten.divide.Tensor,
)
def div(x: Tensor, y: Tensor | float) -> Tensor:
    if isinstance(y, Tensor):
        return x * torch.reciprocal(y)
    largest, y = _precise(y, x)
    if y == 0:
        return x * math.copysign(math.inf, y)
    # in two steps: the quotient may be finite where 1 / y is not
    if abs(1 / y) > largest:
        return x * (1 / (y * BLOCK)) * BLOCK
    return x * (1 / y)


def _precise(y: float, x: Tensor) -> tuple[float, float]:
    """The largest number of the type that x is divided in, and y as a number of that type."""
    kind: type[np.floating] = np.float32
    if x.dtype == torch.float64:
        kind = np.float64
    with np.errstate(over="ignore"):
        return float(np.finfo(kind).max), float(kind(y))


@composition(aten.div.Scalar_mode, aten.divide.Tensor_mode, aten.divide.Scalar_mode)
def div_mode(x: Tensor, y: Tensor | float, *, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return div(x, y)
    return torch.div(x, as_tensor(y, x), rounding_mode=rounding_mode)


@composition(aten.floor_divide.default)
def floor_divide(x: Tensor, y: Tensor | float) -> Tensor:
    return torch.div(x, as_tensor(y, x), rounding_mode="floor")


def as_tensor(y: Tensor | float, x: Tensor) -> Tensor:
    """A number as a tensor of x's type; tensors as they are."""
    if isinstance(y, Tensor):
        return y
    return torch.full((), y, dtype=x.dtype, device=x.device)


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
    if bias is None:
        return result
    return result + bias


@composition(aten.vdot.default)
def vdot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum()


@composition(aten._weight_norm.default)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """v times g over the norm of v over all dimensions but ``dim``; -1: over all of them."""
    dims = list(range(v.dim()))
    if dim != -1:
        dims.remove(dim % v.dim())
    return v * (g * torch.rsqrt((v**2).sum(dims, True)))


@composition(aten.prod.dim_int)
def prod(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    x = in_type(x, dtype)
    factors = list(x.unbind(dim))
    if not factors:
        return torch.ones_like(x.sum(dim, keepdim))
    while len(factors) > 1:  # a balanced tree
        pairs = [a * b for a, b in zip(factors[::2], factors[1::2], strict=False)]
        factors = pairs + factors[len(pairs) * 2 :]
    (product,) = factors
    if keepdim:
        return product.unsqueeze(dim)
    return product
