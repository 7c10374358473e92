"""Linear functions below the rows of clauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.verify.clip import least


@dataclass(frozen=True, eq=False)
class Lines:
    """Functions a x + b below the rows of the clauses of some domains, less the slack: a (domains,
    rows, in), b (domains, rows)."""

    a: Tensor
    b: Tensor

    def least(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Their least values over boxes (domains, in): (domains, rows); -inf where unknown. What
        is not finite is no bound, for something has overflown."""
        found = least(self.a, self.b, lower, upper)
        return torch.where(found.isfinite(), found, -torch.inf)

    def take(self, chosen: Tensor) -> Lines:
        return Lines(self.a[chosen], self.b[chosen])

    @staticmethod
    def join(parts: Sequence[Lines]) -> Lines:
        """Lines of several domains after one another."""
        return Lines(torch.cat([one.a for one in parts]), torch.cat([one.b for one in parts]))

    @staticmethod
    def beside(parts: Sequence[Lines]) -> Lines:
        """Several lines below the same rows as further rows of each domain."""
        return Lines(torch.cat([one.a for one in parts], 1), torch.cat([one.b for one in parts], 1))

    def apart(self, count: int) -> Lines:
        """The rows of each domain as those of ``count`` domains: (count * domains, fewer rows)."""
        rows = self.b.shape[1] // count
        return Lines(self.a.reshape(-1, rows, self.a.shape[2]), self.b.reshape(-1, rows))

    def minimiser(self, row: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """Where one row (domains,) of each is least: (domains, in)."""
        slope = self.a[torch.arange(len(row)), row]
        return torch.where(slope > 0, lower, upper)
