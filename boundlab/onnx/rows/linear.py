"""Products of matrices."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.errors import ArgumentError
from boundlab.onnx.table import row


@row("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@row("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha A B + beta C, A and B transposed if they are said to be."""
    if a.dim() != 2 or b.dim() != 2:
        raise ArgumentError(f"it takes matrices, not {tuple(a.shape)} and {tuple(b.shape)}")
    left = a.t() if transA else a
    right = b.t() if transB else b
    product = torch.matmul(left, right)
    if alpha != 1:
        product = alpha * product
    if c is None:
        return product
    if beta != 1:
        c = beta * c
    return product + c


def dense(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer, which :mod:`boundlab.onnx.layers` makes of products with constants."""
    return F.linear(x, weight, bias)


@row("Einsum")
def einsum(*operands: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation, *operands)


@row("Det")
def det(x: Tensor) -> Tensor:
    return torch.linalg.det(x)
