"""Linear bounds of rows over boxes, by whichever method."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.methods.method import find_method
from boundlab.net import Net
from boundlab.net.linear import lower_lines
from boundlab.net.questions import Options
from boundlab.regions import Box
from boundlab.verify.clip import least
from boundlab.verify.query import Rows


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

    def minimiser(self, row: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """Where one row (domains,) of each is least: (domains, in)."""
        slope = self.a[torch.arange(len(row)), row]
        return torch.where(slope > 0, lower, upper)


class Bounder:
    """Bounds the rows of a query on the model in double precision."""

    def __init__(self, net: Net, rows: Rows) -> None:
        self.net = net
        self.spec = rows.spec()
        shape, _, _ = net.graph.examples[net.graph.inputs[0]]
        self.shape = tuple(shape[1:])
        self.target = net.only_output("verify")

    @torch.no_grad()
    def lines(self, lower: Tensor, upper: Tensor, clause: Tensor, method: str) -> Lines:
        """Lines below the rows of clauses (domains,) over boxes (domains, in)."""
        box = Box(lower.reshape(-1, *self.shape), upper.reshape(-1, *self.shape))
        answer = self.net.ask((box,), {}, Options(find_method(method)))
        a, b = lower_lines(answer.analysis, self.target, self.spec[clause])
        return Lines(a.flatten(2), b)
