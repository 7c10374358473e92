"""Coefficients of a weight matrix that each sample pulls in one direction of its own.

For y = W h, rows c of y give the coefficients c h^T of W, a matrix for every row and sample. Their norms and inner
products need only c and h, so the matrices themselves are made for regions alone that ask for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Outer:
    """left (rows, samples, out) and right (samples, in) for the coefficients (rows, samples, out, in)."""

    left: Tensor
    right: Tensor

    def dense(self) -> Tensor:
        return self.left.unsqueeze(-1) * self.right.unsqueeze(-2)

    def dot(self, value: Tensor) -> Tensor:
        """The inner products with a matrix (out, in): (rows, samples)."""
        return (self.left * torch.matmul(self.right, value.T)).sum(-1)

    def norm(self, order: float) -> Tensor:
        """The norms of the coefficients as vectors: (rows, samples)."""
        return torch.linalg.vector_norm(self.left, order, dim=-1) * torch.linalg.vector_norm(self.right, order, dim=-1)

    def abs(self) -> Outer:
        return Outer(self.left.abs(), self.right.abs())

    def __neg__(self) -> Outer:
        return Outer(-self.left, self.right)

    def total(self, shares: Tensor) -> Tensor:
        """The sum over the samples with shares (samples,): (rows, 1, out, in)."""
        return torch.matmul((self.left * shares[:, None]).transpose(1, 2), self.right).unsqueeze(1)
