"""What all forms of coefficients can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval

if TYPE_CHECKING:
    from boundlab.coefficients.dense import Dense


class Coefficients(ABC):
    """Linear functions of one node's elements, a stack of rows for every sample: the matrix A of
    the paper.

    Rows are one-sided: each is the coefficient vector of one quantity that is bounded from below.
    Forms differ in what they leave out: :class:`boundlab.coefficients.dense.Dense` and
    :class:`boundlab.coefficients.dense.PerSample` hold every coefficient,
    :class:`boundlab.coefficients.window.Window` those inside of a window,
    :class:`boundlab.coefficients.outer.Outer` two factors.
    """

    @property
    @abstractmethod
    def stored(self) -> tuple[Tensor, ...]:
        """The tensors that hold the coefficients; rows lie in dimension 0 of the first."""

    @abstractmethod
    def whole(self) -> Dense:
        """The same rows in the form that holds every coefficient."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Every coefficient: (rows, *shape of the node), or (rows, samples, *shape) for a node that
        all samples share."""

    @abstractmethod
    def by_sample(self) -> Tensor:
        """Every coefficient, sample by sample: (rows, samples, elements of one)."""

    @abstractmethod
    def dot(self, value: Tensor) -> Tensor:
        """The inner products with a value of the node: (rows, samples)."""

    @abstractmethod
    def apply(self, function: Callable[[Tensor], Tensor]) -> Coefficients:
        """A function with f(0) = 0 of each coefficient."""

    @abstractmethod
    def pick(self, kept: Tensor) -> Coefficients:
        """Some of the rows of each sample: kept (fewer rows, samples)."""

    @abstractmethod
    def __getitem__(self, rows: slice) -> Coefficients:
        """Some of the rows, the same of each sample."""

    @abstractmethod
    def __add__(self, other: Coefficients) -> Coefficients:
        """The sums of the rows."""

    @abstractmethod
    def over_box(self, box: Interval) -> Tensor:
        """The least value over a bounded box, c . centre - |c| . radius: (rows, samples)."""

    def least(self, x: Interval) -> Tensor:
        """The least value over an interval, whose ends may be infinite: (rows, samples)."""
        lower, upper = x.lower.to(self.dtype), x.upper.to(self.dtype)
        return self.apply(_positive).dot(lower) + self.apply(_negative).dot(upper)

    def __neg__(self) -> Coefficients:
        return self.apply(torch.neg)

    def __len__(self) -> int:
        return len(self.stored[0])

    @property
    def size(self) -> int:
        """How many numbers are held."""
        return sum(tensor.numel() for tensor in self.stored)

    @property
    def dtype(self) -> torch.dtype:
        return self.stored[0].dtype

    @property
    def device(self) -> torch.device:
        return self.stored[0].device


def _positive(rows: Tensor) -> Tensor:
    return rows.clamp(min=0)


def _negative(rows: Tensor) -> Tensor:
    return rows.clamp(max=0)


def pick_rows(rows: Tensor, kept: Tensor) -> Tensor:
    """(rows, samples, ...), kept (fewer rows, samples) -> (fewer rows, samples, ...)."""
    flat = kept * rows.shape[1] + torch.arange(rows.shape[1], device=rows.device)
    return rows.flatten(0, 1).index_select(0, flat.flatten()).unflatten(0, kept.shape)
