"""Quotients, interpolation, products and sums of them."""

from __future__ import annotations

import itertools
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
    smallest, largest, y = _precise(y, x)
    if y == 0:
        return x * math.copysign(math.inf, y)
    # in two steps: the quotient may be finite where 1 / y is not
    if abs(1 / y) > largest:
        return x * (1 / (y * BLOCK)) * BLOCK
    if abs(1 / y) < smallest:
        return x * (BLOCK / y) * (1 / BLOCK)
    return x * (1 / y)


def _precise(y: float, x: Tensor) -> tuple[float, float, float]:
    """The smallest normal and the largest number of the type that x is divided in, and y as a
    number of that type."""
    kind: type[np.floating] = np.float32
    if x.dtype == torch.float64:
        kind = np.float64
    with np.errstate(over="ignore"):
        return float(np.finfo(kind).smallest_normal), float(np.finfo(kind).max), float(kind(y))


@composition(aten.div.Scalar_mode, aten.divide.Tensor_mode, aten.divide.Scalar_mode)
def div_mode(x: Tensor, y: Tensor | float, *, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return div(x, y)
    return torch.div(x, as_tensor(y, x), rounding_mode=rounding_mode)


@composition(aten.floor_divide.default)
def floor_divide(x: Tensor, y: Tensor | float) -> Tensor:
    return torch.div(x, as_tensor(y, x), rounding_mode="floor")


def as_tensor(y: Tensor | float, x: Tensor) -> Tensor:
    """A number as a tensor of the type that it gets beside x; tensors as they are."""
    if isinstance(y, Tensor):
        return y
    return torch.full((), y, dtype=torch.result_type(x, y), device=x.device)


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
    return x + (value * y) * z


@composition(aten.addcdiv.default)
def addcdiv(x: Tensor, y: Tensor, z: Tensor, *, value: float = 1) -> Tensor:
    return x + (value * y) * torch.reciprocal(z)


@composition(aten.lerp.Scalar)
def lerp(x: Tensor, y: Tensor, weight: float) -> Tensor:
    """The weight is a number of x's type before it is subtracted from 1."""
    w = as_tensor(weight, x)
    return (1 - w) * x + w * y


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


@composition(
    aten.xlogy.Tensor,
    aten.xlogy.Scalar_Self,
    aten.xlogy.Scalar_Other,
    aten.special_xlogy.default,
    aten.special_xlogy.self_scalar,
    aten.special_xlogy.other_scalar,
)
def xlogy(x: Tensor | float, y: Tensor | float) -> Tensor:
    x, y = _both_tensors(x, y)
    return _zero_where((x == 0) & (y == 0), x * torch.log(y))


@composition(
    aten.special_xlog1py.default,
    aten.special_xlog1py.self_scalar,
    aten.special_xlog1py.other_scalar,
)
def xlog1py(x: Tensor | float, y: Tensor | float) -> Tensor:
    x, y = _both_tensors(x, y)
    return _zero_where((x == 0) & (y == -1), x * torch.log1p(y))


def _both_tensors(x: Tensor | float, y: Tensor | float) -> tuple[Tensor, Tensor]:
    """Two arguments, one of which is a tensor, as tensors."""
    if isinstance(x, Tensor):
        return x, as_tensor(y, x)
    assert isinstance(y, Tensor)
    return as_tensor(x, y), y


def _zero_where(condition: Tensor, x: Tensor) -> Tensor:
    return torch.where(condition, as_tensor(0.0, x), x)


@composition(aten.cumprod.default)
def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    x = in_type(x, dtype)
    if x.dim() == 0 or x.shape[dim] == 0:
        return x.clone()
    return torch.stack(list(itertools.accumulate(x.unbind(dim), torch.mul)), dim)


@composition(aten.prod.default)
def prod_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return prod(x.flatten(), 0, dtype=dtype)


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
