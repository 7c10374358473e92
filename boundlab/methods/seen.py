"""Relaxations of the elements that windows see, (rows, samples, *sizes), instead of those of a
node: so every row can have slopes of its own, which for whole nodes would be far more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.coefficients.window import Window
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import Call


@dataclass(frozen=True, eq=False)
class SeenByWindows:
    """Lines whose elements are those that windows see, (rows, samples, *sizes), not those of a
    node."""

    lines: Relaxation

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float]:
        rows = rows.zero_padded()
        pulled, terms = self.lines.backward(rows.values.unsqueeze(0))
        total: Tensor | float = 0.0
        for part, constant in terms:
            summand = part[0]
            if constant is not None:
                summand = summand * constant
            total = total + summand.flatten(2).sum(2)
        return [rows.with_values(part[0]) for part in pulled], total


def seen_by_windows(call: Call, rows: Window) -> Call | None:
    """The call on the elements that the windows see, if it is elementwise without other tensors."""
    if any(isinstance(leaf, Tensor) for leaf in call.leaves) or len(call.inputs) != 1:
        return None
    (x,) = call.inputs
    if x.shape != torch.Size((rows.values.shape[1], *rows.places.shape)):
        return None
    lower, upper = rows.places.take(x.lower), rows.places.take(x.upper)
    # outside of the node anything goes that the operator is defined for
    if any(map(any, rows.places.overhang)):
        inside = rows.places.take(torch.ones_like(x.lower)) > 0
        lower = torch.where(inside, lower, x.lower.flatten()[0])
        upper = torch.where(inside, upper, x.upper.flatten()[0])
    leaves = list(call.leaves)
    (place,) = call.positions
    leaves[place] = Interval(lower, upper)
    return replace(call, leaves=tuple(leaves))
