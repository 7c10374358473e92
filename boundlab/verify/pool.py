"""Boxes that are still open."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.verify.boxes import Boxes

MEMORY = 1 << 31
"""Bytes that open boxes may take."""


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
        return self._taken(self._worst(count))

    def worst(self, count: int) -> Boxes:
        """The boxes with the least bounds; they stay."""
        return self.boxes.take(self._worst(count))

    def _worst(self, count: int) -> Tensor:
        if count >= len(self):
            return torch.arange(len(self))
        return torch.topk(self.boxes.bound, count, largest=False).indices

    def draw(self, count: int, generator: torch.Generator) -> Boxes:
        """Boxes at random, some perhaps several times; they stay."""
        return self.boxes.take(torch.randint(len(self), (count,), generator=generator))

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
