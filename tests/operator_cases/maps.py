"""Linear maps that a constant decides: grids, systems of equations, sparse matrices."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.operator_cases.case import add

PADDINGS = ("zeros", "border", "reflection")


def warped(mode: str, padding: str, align: bool) -> Any:
    """An image along one grid for all samples, part of which lies outside of it."""

    def warp(x: Tensor, grid: Tensor) -> Tensor:
        wide = (1.3 * grid.tanh()).expand(x.shape[0], *grid.shape[1:])
        return F.grid_sample(x, wide, mode, padding, align_corners=align)

    return warp


def well_conditioned(size: int) -> Tensor:
    return torch.randn(size, size) + 3 * torch.eye(size)


def solve_triangular(x: Tensor, A: Tensor) -> Tensor:
    lower = torch.linalg.solve_triangular(A, x.T, upper=False).T
    return lower - torch.linalg.solve_triangular(A, x, upper=True, left=False, unitriangular=True)


def fill() -> None:
    images = [
        (mode, padding, align)
        for mode in ("bilinear", "nearest", "bicubic")
        for padding, align in zip(PADDINGS, (False, True, False), strict=True)
    ]
    add(
        (2, 3, 4), {f"grid_sample, {m}, {p}": (warped(m, p, a), (1, 2, 3, 2)) for m, p, a in images}
    )
    add((1, 2, 2, 3), {
        "grid_sample, volume": (warped("bilinear", "zeros", False), (1, 2, 2, 2, 3)),
        "grid_sample, volume, nearest": (warped("nearest", "border", True), (1, 2, 2, 2, 3)),
    })  # fmt: skip
    sparse = torch.randn(3, 4).relu().to_sparse()
    add((4,), {
        "solve": (lambda x, A: torch.linalg.solve(A, x.unsqueeze(-1)).squeeze(-1), well_conditioned(4)),
        "solve, right": (lambda x, A: torch.linalg.solve(A, x, left=False), well_conditioned(4)),
        "solve_triangular": (solve_triangular, well_conditioned(4)),
        "sparse product": (lambda x, S: torch.sparse.mm(S, x.T).T, sparse),
        "sparse product and sum": (lambda x, S, b: torch.sparse.addmm(b.expand(3, x.shape[0]), S, x.T, beta=0.5, alpha=-2.0).T, sparse, (3, 1)),
    })  # fmt: skip
