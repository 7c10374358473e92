"""Constraints on the elements of a node, under which bounds hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval


@dataclass(frozen=True, eq=False)
class Split:
    """``sign * (x - at) >= 0`` for the elements of a node with sign 1 or -1; 0: no constraint.
    Both have the shape of the node's value."""

    sign: Tensor
    at: Tensor

    @staticmethod
    def nowhere(like: Interval) -> Split:
        """No constraint at all."""
        zeros = torch.zeros_like(like.lower)
        return Split(zeros, zeros)

    def cut(self, x: Interval) -> Interval:
        """The part of an interval in which the constraints hold; its ends may cross."""
        lower = torch.where(self.sign > 0, torch.maximum(x.lower, self.at), x.lower)
        upper = torch.where(self.sign < 0, torch.minimum(x.upper, self.at), x.upper)
        return Interval(lower, upper)
