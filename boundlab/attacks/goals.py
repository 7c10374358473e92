"""How far outputs are from a violation.

A violation is an OR of ANDs: of some clauses one must hold, and a clause holds if all its rows do,
``excess <= 0``. Points are inputs (points, *shape) with flat outputs (points, outputs).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.specs.property import Clause


class Goal(ABC):
    """What points are moved towards."""

    @property
    @abstractmethod
    def clause_of_row(self) -> Tensor:
        """Which clause each row belongs to: (rows,)."""

    @abstractmethod
    def excess(self, x: Tensor, y: Tensor, owner: Tensor) -> Tensor:
        """What every row lacks: (points, rows). owner: the sample of each point, (points,)."""

    @abstractmethod
    def holds(self, excess: Tensor) -> Tensor:
        """Which rows hold: (points, rows)."""

    def violated(self, excess: Tensor) -> Tensor:
        """Which points are violations: all rows of one clause hold, (points,). NaN never does."""
        lacking = (~self.holds(excess)).to(excess.dtype)
        return (self.margins(lacking) == 0).any(1)

    @property
    def clauses(self) -> int:
        """How many clauses there are."""
        rows = self.clause_of_row
        return int(rows.max()) + 1 if len(rows) else 0

    def margins(self, excess: Tensor) -> Tensor:
        """What every clause lacks, the largest excess of its rows: (points, clauses)."""
        index = self.clause_of_row.to(excess.device).expand(excess.shape)
        start = excess.new_full((len(excess), self.clauses), -torch.inf)
        return start.scatter_reduce(1, index, excess, "amax", include_self=False)

    def loss(self, excess: Tensor, chosen: Tensor) -> Tensor:
        """What the rows of one clause lack in all, for each point: (points,). Rows that hold count
        by their largest excess alone, so that there is a way down until all hold by far."""
        own = self.clause_of_row.to(excess.device) == chosen[:, None]
        lacking = torch.where(own, F.relu(excess), 0).sum(1)
        worst = torch.where(own, excess, -torch.inf).amax(1)
        return lacking + worst


@dataclass(frozen=True, eq=False)
class OtherClass(Goal):
    """Another class is at least as large as the label: a clause with one row for each class.
    labels: (samples,)."""

    labels: Tensor
    classes: int

    @property
    def clause_of_row(self) -> Tensor:
        return torch.arange(self.classes, device=self.labels.device)

    def excess(self, x: Tensor, y: Tensor, owner: Tensor) -> Tensor:
        """f_label - f_k; infinite for the label itself, which is never a violation."""
        label = self.labels[owner][:, None]
        return (y.gather(1, label) - y).scatter(1, label, torch.inf)

    def holds(self, excess: Tensor) -> Tensor:
        return excess <= 0


class UnsafeSet(Goal):
    """The clauses of a property, A y + B x + c <= 0 in every row, < 0 where it is strict; in double
    precision, as the property has them."""

    def __init__(self, clauses: Sequence[Clause], inputs: int, device: torch.device) -> None:
        """inputs: elements of an input."""
        counts = torch.tensor([len(one.constant) for one in clauses])
        self._rows = torch.repeat_interleave(torch.arange(len(clauses)), counts).to(device)
        self.outputs = torch.cat([one.outputs for one in clauses]).to(device)
        self.constant = torch.cat([one.constant for one in clauses]).to(device)
        self.strict = torch.cat([one.strict for one in clauses]).to(device)
        self.inputs: Tensor | None = None
        if any(one.inputs is not None for one in clauses):
            parts = [_of_inputs(one, inputs) for one in clauses]
            self.inputs = torch.cat(parts).to(device)

    @property
    def clause_of_row(self) -> Tensor:
        return self._rows

    def excess(self, x: Tensor, y: Tensor, owner: Tensor) -> Tensor:
        found = F.linear(y.double(), self.outputs, self.constant)
        if self.inputs is not None:
            found = found + F.linear(x.flatten(1).to(y.device, torch.float64), self.inputs)
        return found

    def holds(self, excess: Tensor) -> Tensor:
        return torch.where(self.strict, excess < 0, excess <= 0)


def _of_inputs(clause: Clause, inputs: int) -> Tensor:
    """The coefficients of the inputs, zeros if the clause does not speak of them."""
    if clause.inputs is not None:
        return clause.inputs
    return torch.zeros(len(clause.constant), inputs, dtype=torch.float64)
