"""Entries that indices pick from a table, and values of which two constants are all that is known,
whatever the shapes of the arguments are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import ForwardBound, Relaxation, Rows, Terms, add_constant


@dataclass(frozen=True, eq=False)
class Picked(Relaxation):
    """The entries of a table, the first argument if it is perturbed, that certain indices pick, and
    between two constants what others do. entries: table -> result, 0 where the index is not
    certain; None for a constant table. lower, upper: 0 where ``entries`` says all. indices: the
    shapes of the perturbed indices."""

    entries: AffineMap | None
    lower: Tensor
    upper: Tensor
    indices: tuple[torch.Size, ...]

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        of_table: list[Rows] = []
        if self.entries is not None:
            of_table, _ = self.entries.backward(rows)
        of_indices = [rows.new_zeros(len(rows), *shape) for shape in self.indices]
        terms: Terms = [(rows.clamp(min=0), self.lower), (rows.clamp(max=0), self.upper)]
        return [*of_table, *of_indices], terms

    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        if self.entries is None:
            low = up = self.lower.new_zeros(len(lower[0]), *self.lower.shape)
        else:
            low, up = self.entries.forward(lower[:1], upper[:1])
        return add_constant(low.clone(), self.lower), add_constant(up.clone(), self.upper)


def between(bounds: Interval, arguments: Sequence[Interval]) -> Picked:
    """The relaxation that knows only an interval, for arguments of other shapes than that has."""
    kinds = (x.dtype for x in (bounds, *arguments) if x.dtype.is_floating_point)
    dtype = next(kinds, torch.get_default_dtype())
    shapes = tuple(x.shape for x in arguments)
    return Picked(None, bounds.lower.to(dtype), bounds.upper.to(dtype), shapes)
