"""Determinants and inverses of small matrices, and products of vectors in space.

Cramer's rule needs as many products as there are permutations: matrices of more than three rows are
left to torch, and have no rule where they are perturbed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition

LARGEST = 3
"""Rows of a matrix that is taken apart."""


@composition(aten.det.default, aten.linalg_det.default)
def det(x: Tensor) -> Tensor:
    """(..., n, n) -> (...)."""
    size = x.shape[-1]
    if size == 0 or size > LARGEST:
        result: Tensor = aten._linalg_det.default(x)[0]
        return result
    if size == 1:
        return x.squeeze(-1).squeeze(-1)
    if size == 2:
        a, b, c, d = _entries(x)
        return a * d - b * c
    first, second, third = x.unbind(-2)
    return (first * cross(second, third, -1)).sum(-1)


def _entries(x: Tensor) -> tuple[Tensor, ...]:
    """The entries of matrices, row by row."""
    return x.flatten(-2).unbind(-1)


@composition(aten.logdet.default)
def logdet(x: Tensor) -> Tensor:
    return torch.log(det(x))


@composition(aten.inverse.default, aten.linalg_inv.default)
def inverse(x: Tensor) -> Tensor:
    """Minors over the determinant, (..., n, n)."""
    size = x.shape[-1]
    if size == 0 or size > LARGEST:
        result: Tensor = aten.linalg_inv_ex.default(x)[0]
        return result
    if size == 1:
        return torch.reciprocal(x)
    if size == 2:
        a, b, c, d = _entries(x)
        minors = torch.stack([d, -b, -c, a], -1).reshape(x.shape)
    else:
        p, q, r = x.unbind(-2)
        minors = torch.stack([cross(q, r, -1), cross(r, p, -1), cross(p, q, -1)], -1)
    return minors * torch.reciprocal(det(x)).unsqueeze(-1).unsqueeze(-1)


@composition(aten.cross.default)
def cross(x: Tensor, y: Tensor, dim: int | None = None) -> Tensor:
    """Along the first dimension of size 3 if none is named."""
    x, y = torch.broadcast_tensors(x, y)
    if dim is None:
        dim = list(x.shape).index(3)
    turned = lambda v, by: torch.roll(v, -by, dim)
    return turned(x, 1) * turned(y, 2) - turned(x, 2) * turned(y, 1)


@composition(aten.linalg_cross.default)
def linalg_cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    return cross(x, y, dim)
