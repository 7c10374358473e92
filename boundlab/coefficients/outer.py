"""Coefficients of a weight matrix that each sample pulls in one direction of its own.

For y = W h, rows c of y give the coefficients c h^T of W, a matrix for every row and sample. Their
norms and inner products need only c and h, so the matrices themselves are made for regions alone
that ask for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients, pick_rows
from boundlab.coefficients.dense import PerSample
from boundlab.relaxations.interval import Interval


def norm(values: Tensor, order: float, dim: int = -1) -> Tensor:
    """Norms along a dimension. Powers of small numbers vanish for large orders, so these are taken
    relative to the largest one."""
    if order in (1.0, 2.0, math.inf) or not values.shape[dim]:
        return torch.linalg.vector_norm(values, order, dim=dim)
    largest = values.abs().amax(dim, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    return largest.squeeze(dim) * torch.linalg.vector_norm(values / largest, order, dim=dim)


@dataclass(frozen=True, eq=False)
class Outer(Coefficients):
    """left (rows, samples, out) and right (samples, in) for the coefficients (rows, samples, out,
    in)."""

    left: Tensor
    right: Tensor

    @property
    def stored(self) -> tuple[Tensor, ...]:
        return self.left, self.right

    def whole(self) -> PerSample:
        return PerSample.of(self.dense())

    def dense(self) -> Tensor:
        return self.left.unsqueeze(-1) * self.right.unsqueeze(-2)

    def by_sample(self) -> Tensor:
        return self.dense().flatten(2)

    def dot(self, value: Tensor) -> Tensor:
        return (self.left * torch.matmul(self.right, value.T)).sum(-1)

    def apply(self, function: Callable[[Tensor], Tensor]) -> PerSample:
        return self.whole().apply(function)

    def pick(self, kept: Tensor) -> Outer:
        return Outer(pick_rows(self.left, kept), self.right)

    def __getitem__(self, rows: slice) -> Outer:
        return Outer(self.left[rows], self.right)

    def __add__(self, other: Coefficients) -> PerSample:
        return PerSample.of(self.dense() + other.dense())

    def __neg__(self) -> Outer:
        return Outer(-self.left, self.right)

    def over_box(self, box: Interval) -> Tensor:
        return self.dot(box.centre) - Outer(self.left.abs(), self.right.abs()).dot(
            box.reach_of_ends
        )

    def detach(self) -> Outer:
        return Outer(self.left.detach(), self.right.detach())

    def norm(self, order: float) -> Tensor:
        """The norms of the coefficients as vectors: (rows, samples)."""
        return norm(self.left, order) * norm(self.right, order)

    def total(self, shares: Tensor) -> Tensor:
        """The sum over the samples with shares (samples,): (rows, 1, out, in)."""
        return torch.matmul((self.left * shares[:, None]).transpose(1, 2), self.right).unsqueeze(1)
