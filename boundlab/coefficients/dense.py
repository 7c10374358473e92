"""Coefficients of every element of a node: of one with samples, and of one that samples share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients, pick_rows
from boundlab.graph.layout import Layout, SampleLayout
from boundlab.kernels.intervals import least
from boundlab.kernels.reductions import dots, product
from boundlab.relaxations.interval import Interval

PLAIN = Layout()


@dataclass(frozen=True, eq=False)
class Dense(Coefficients):
    """values (rows, *shape) of a node whose samples lie where ``layout`` says."""

    values: Tensor
    layout: Layout
    samples: int

    @property
    def stored(self) -> tuple[Tensor, ...]:
        return (self.values,)

    def whole(self) -> Self:
        return self

    def dense(self) -> Tensor:
        return self.values

    def by_sample(self) -> Tensor:
        return self.layout.samples_first(self.values, self.samples)

    def dot(self, value: Tensor) -> Tensor:
        return self.layout.dot(self.values, value, self.samples)

    def term(self, part: Tensor, constant: Tensor | None) -> Tensor:
        """A term of a backward step, the inner products of rows like these and a constant, or their
        sums: (rows, samples)."""
        if constant is None:
            return self.layout.sum(part, self.samples)
        return self.layout.dot(part, constant, self.samples)

    def with_values(self, values: Tensor) -> Self:
        return replace(self, values=values)

    def apply(self, function: Callable[[Tensor], Tensor]) -> Self:
        return self.with_values(function(self.values))

    def detach(self) -> Self:
        return self.with_values(self.values.detach())

    def pick(self, kept: Tensor) -> Self:
        assert self.layout.plain, "rows are only dropped where samples lie in dimension 0"
        return self.with_values(pick_rows(self.values, kept))

    def __getitem__(self, rows: slice) -> Self:
        return self.with_values(self.values[rows])

    def __add__(self, other: Coefficients) -> Coefficients:
        if isinstance(other, Dense):
            return self.with_values(self.values + other.values)
        return other + self  # which knows what it leaves out

    def over_box(self, box: Interval) -> Tensor:
        if self.layout.plain:
            return over_box(self.values, box)
        return self.dot(box.centre) - self.apply(torch.abs).dot(box.reach_of_ends)


@dataclass(frozen=True, eq=False)
class PerSample(Dense):
    """values (rows, samples, *shape) of a node that all samples share (a weight): each sample
    pulls it in a direction of its own, so that it keeps a copy of the coefficients."""

    @staticmethod
    def of(values: Tensor) -> PerSample:
        return PerSample(values, PLAIN, values.shape[1])

    def flat(self) -> Tensor:
        """Every sample's copy as a row of its own: (rows * samples, *shape)."""
        return self.values.flatten(0, 1)

    def unflat(self, values: Tensor) -> PerSample:
        """The inverse of :meth:`flat`, for coefficients of any node that samples share."""
        return PerSample.of(values.unflatten(0, self.values.shape[:2]))

    def term(self, part: Tensor, constant: Tensor | None) -> Tensor:
        """A term of a backward step through :meth:`flat`: (rows, samples)."""
        if constant is not None:
            part = product(part, constant)
        return part.reshape(len(part), part.shape[1:].numel()).sum(1).reshape(self.values.shape[:2])

    def total(self, shares: Tensor) -> Tensor:
        """The sum over the samples with shares (samples,): (rows, 1, *shape)."""
        return torch.tensordot(shares, self.values, ([0], [1])).unsqueeze(1)


def of_node(values: Tensor, layout: SampleLayout, samples: int) -> Dense:
    """Coefficients of a node with this layout: (rows, *shape), or (rows, samples, *shape) if all
    samples share it."""
    if isinstance(layout, Layout):
        return Dense(values, layout, samples)
    return PerSample.of(values)


def placed(rows: Tensor, layout: SampleLayout, shape: torch.Size, samples: int) -> Dense:
    """Coefficients (rows, samples, elements) of the elements of each sample, where they lie in a
    node of some shape."""
    if isinstance(layout, Layout):
        return Dense(layout.place(rows, shape), layout, samples)
    return PerSample.of(rows.reshape(*rows.shape[:2], *shape))


def inner(coefficients: Tensor, value: Tensor) -> Tensor:
    """<coefficients, value> per row and sample: (rows, samples, *shape), broadcastable value ->
    (rows, samples)."""
    if coefficients.dim() == 2:
        return coefficients * value
    return dots(coefficients.flatten(2), _by_sample(coefficients, value))


def over_box(coefficients: Tensor, box: Interval) -> Tensor:
    """The least <coefficients, value> over a box, c . centre - |c| . radius: (rows, samples,
    *shape) -> (rows, samples)."""
    centre, radius = box.centre, box.reach_of_ends
    box_moves = centre.requires_grad or radius.requires_grad
    if coefficients.dim() == 2 or box_moves or not coefficients.requires_grad:
        return inner(coefficients, centre) - inner(coefficients.abs(), radius)
    return least(
        coefficients.flatten(2), _by_sample(coefficients, centre), _by_sample(coefficients, radius)
    )


def _by_sample(coefficients: Tensor, value: Tensor) -> Tensor:
    """A value (samples, *shape), or (*shape) for all of them, as (samples, n)."""
    samples, shape = coefficients.shape[1], coefficients.shape[2:]
    if value.dim() == coefficients.dim() - 1:
        return value.expand(samples, *shape).flatten(1).expand(samples, -1)
    return value.expand(shape).flatten()[None].expand(samples, -1)
