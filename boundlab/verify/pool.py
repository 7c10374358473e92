"""Boxes that are still open."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MEMORY = 1 << 31
"""Bytes that open boxes may take."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Subdomains: lower and upper (domains, in), the clause that each is for, the best lower bound
    of its rows that is known, how much splitting each coordinate would do (domains, in), and how
    often it was halved, clipping included (domains,)."""

    lower: Tensor
    upper: Tensor
    clause: Tensor
    bound: Tensor
    score: Tensor
    depth: Tensor

    def __len__(self) -> int:
        return len(self.clause)

    def take(self, chosen: Tensor) -> Boxes:
        return Boxes(*(part[chosen] for part in self._parts()))

    def _parts(self) -> list[Tensor]:
        return [self.lower, self.upper, self.clause, self.bound, self.score, self.depth]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts())

    @staticmethod
    def join(parts: list[Boxes]) -> Boxes:
        columns = zip(*(part._parts() for part in parts), strict=True)
        return Boxes(*(torch.cat(column) for column in columns))

    @property
    def volume(self) -> float:
        """The sum of their shares of the boxes that they came from."""
        return float((2.0**-self.depth).sum())


class Pool:
    """The open boxes of a search, worst bounds first."""

    def __init__(self, first: Boxes) -> None:
        self.boxes = first

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def bound(self) -> float:
        """The least bound of all that is open."""
        return float(self.boxes.bound.min()) if len(self) else float("inf")

    @property
    def is_full(self) -> bool:
        return self.boxes.nbytes > MEMORY

    def pick(self, count: int) -> Boxes:
        """Take out the boxes with the least bounds."""
        if count >= len(self):
            return self._taken(torch.arange(len(self)))
        return self._taken(torch.topk(self.boxes.bound, count, largest=False).indices)

    def draw(self, count: int, generator: torch.Generator) -> Boxes:
        """Take out boxes at random."""
        return self._taken(torch.randperm(len(self), generator=generator)[:count])

    def _taken(self, order: Tensor) -> Boxes:
        found = self.boxes.take(order)
        kept = torch.ones(len(self), dtype=torch.bool)
        kept[order] = False
        self.boxes = self.boxes.take(kept)
        return found

    def drop(self, clause: int) -> int:
        """Take out all boxes of a clause; how many."""
        return len(self._taken((self.boxes.clause == clause).nonzero().flatten()))

    def put(self, boxes: Boxes) -> None:
        if len(boxes):
            self.boxes = Boxes.join([self.boxes, boxes])
