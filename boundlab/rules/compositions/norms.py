"""Norms, distances and angles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundlab.errors import CaptureError
from boundlab.rules.registry import aten, composition
from boundlab.rules.settings import Dims, in_type


@composition(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    x = in_type(x, dtype)
    dims = named_dimensions(x, dim)
    if ord == 2:
        return torch.sqrt((x**2).sum(dims, keepdim))
    if ord == 1:
        return x.abs().sum(dims, keepdim)
    if ord == math.inf:
        return torch.amax(x.abs(), dims, keepdim)
    if ord == -math.inf:
        return -torch.amax(-x.abs(), dims, keepdim)
    if ord == 0:
        return (x != 0).to(x.dtype).sum(dims, keepdim)
    return (x.abs() ** ord).sum(dims, keepdim) ** (1 / ord)


@composition(aten.norm.ScalarOpt_dim, aten.norm.Scalar)
def norm(x: Tensor, p: float | None = 2, dim: Dims = None, keepdim: bool = False) -> Tensor:
    if p is None:
        p = 2
    return vector_norm(x, p, dim, keepdim)


@composition(aten.linalg_norm.default)
def linalg_norm(
    x: Tensor,
    ord: float | None = None,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    if ord is None:
        return vector_norm(x, 2, dim, keepdim, dtype=dtype)
    if len(named_dimensions(x, dim)) == 2:
        raise CaptureError(
            f"linalg.norm with ord={ord} of matrices has no rule; vector norms (dim=one dimension) "
            "do"
        )
    return vector_norm(x, ord, dim, keepdim, dtype=dtype)


@composition(aten.cosine_similarity.default)
def cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    x, y = torch.broadcast_tensors(x, y)
    return (_unit(x, dim, eps) * _unit(y, dim, eps)).sum(dim)


def _unit(x: Tensor, dim: int, eps: float) -> Tensor:
    """x over its norm, which counts as at least ``eps``."""
    return x * torch.reciprocal(torch.clamp_min(vector_norm(x, 2, dim, True), eps))


@composition(aten.pairwise_distance.default)
def pairwise_distance(
    x: Tensor, y: Tensor, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    return vector_norm(x - y + eps, p, -1, keepdim)


@composition(aten.cdist.default)
def cdist(x: Tensor, y: Tensor, p: float = 2, compute_mode: int | None = None) -> Tensor:
    """(..., n, features) and (..., m, features) -> (..., n, m)."""
    return vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


@composition(aten.dist.default)
def dist(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    return vector_norm(x - y, p)


def named_dimensions(x: Tensor, dim: Dims) -> tuple[int, ...]:
    """The dimensions that an argument names; all of them for None."""
    if dim is None:
        return tuple(range(x.dim()))
    if isinstance(dim, int):
        return (dim,)
    return tuple(dim)
