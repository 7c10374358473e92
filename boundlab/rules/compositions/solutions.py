"""Linear systems and products with sparse matrices, as products with the inverse or with the dense
matrix: affine in the right-hand side, whose transposes are those of a product.

Bounds need the inverse itself (its absolute values), so nothing is gained by a factorisation. A
singular matrix raises, as it does in the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition


def _inverse(A: Tensor) -> Tensor:
    return torch.linalg.inv_ex(A, check_errors=True).inverse


@composition(aten.linalg_solve.default)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """A, (*batch, n, n); B, (*batch, n) or (*batch, n, k) or, for left=False, (*batch, k, n)."""
    # torch's rule of what counts as one vector for each matrix
    is_vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and B.shape == A.shape[:-1])
    if is_vector:
        return (_inverse(A) @ B.unsqueeze(-1)).squeeze(-1)
    if left:
        return _inverse(A) @ B
    return B @ _inverse(A)


@composition(aten.linalg_solve_triangular.default)
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The entries on the other side of the diagonal are not read, nor the diagonal itself if it
    counts as ones."""
    part = int(unitriangular)
    used = torch.triu(A, part) if upper else torch.tril(A, -part)
    if unitriangular:
        used = used + torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    if left:
        return _inverse(used) @ B
    return B @ _inverse(used)


def _dense(x: Tensor) -> Tensor:
    return x if x.layout is torch.strided else x.to_dense()


@composition(aten._sparse_mm.default)
def sparse_mm(sparse: Tensor, dense: Tensor) -> Tensor:
    return torch.mm(_dense(sparse), _dense(dense))


@composition(aten._sparse_addmm.default)
def sparse_addmm(
    x: Tensor, sparse: Tensor, dense: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    product = torch.mm(_dense(sparse), _dense(dense))
    if alpha != 1:
        product = alpha * product
    if beta == 0:  # x is not read, whatever it is
        return product
    return beta * x + product
