"""Where the samples of a batch lie in a tensor.

In the nodes of real networks exactly one dimension carries the batch, alone or merged with another
one (heads, time): its size is ``outer * samples * inner`` in C order (:class:`Layout`); or none
does, and all samples share the value (:class:`Shared`). Samples do not interact, so transposes of
operators never need to know; only sums per sample and the place of a specification do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.kernels.reductions import dots, product, unless_infinite


class SampleLayout(ABC):
    """How the elements of a node belong to samples. ``lead``: dimensions in front of the node's."""

    @property
    @abstractmethod
    def batched(self) -> bool:
        """Whether a dimension carries samples."""

    @property
    @abstractmethod
    def plain(self) -> bool:
        """Whether samples lie in dimension 0, alone."""

    @abstractmethod
    def count(self, samples: int) -> int:
        """How many samples the value has: those of the batch, or one that all share."""

    @abstractmethod
    def sample_shape(self, shape: Sequence[int]) -> torch.Size:
        """The shape of one sample of a value of some shape."""

    @abstractmethod
    def samples_first(self, rows: Tensor, samples: int) -> Tensor:
        """``(rows, *shape) -> (rows, count, rest)``: each sample's elements, flattened."""

    @abstractmethod
    def place(self, rows: Tensor, shape: torch.Size) -> Tensor:
        """``(rows, count, rest) -> (rows, *shape)``: the inverse of :meth:`samples_first`."""

    @abstractmethod
    def spread(self, numbers: Tensor, shape: torch.Size) -> Tensor:
        """Numbers (rows, samples) for the rows that a relaxation propagates through the node,
        broadcastable to (rows, *shape), or (rows * samples, *shape) for a shared value."""

    @abstractmethod
    def take(self, value: Tensor, samples: int, chosen: Tensor, lead: int = 0) -> Tensor:
        """The value (*lead, *shape) of some samples."""

    @abstractmethod
    def join(self, values: Sequence[Tensor], sizes: Sequence[int], lead: int = 0) -> Tensor:
        """The values (*lead, *shape) of consecutive parts of a batch, of these sizes, as one."""


@dataclass(frozen=True)
class Shared(SampleLayout):
    """No dimension carries samples (a weight): all samples share the value, which counts as one."""

    batched = False
    plain = False

    def count(self, samples: int) -> int:
        return 1

    def sample_shape(self, shape: Sequence[int]) -> torch.Size:
        return torch.Size(shape)

    def samples_first(self, rows: Tensor, samples: int) -> Tensor:
        return rows.reshape(rows.shape[0], 1, rows.shape[1:].numel())

    def place(self, rows: Tensor, shape: torch.Size) -> Tensor:
        return rows.reshape(rows.shape[0], *shape)

    def spread(self, numbers: Tensor, shape: torch.Size) -> Tensor:
        return numbers.reshape(-1, *[1] * len(shape))

    def take(self, value: Tensor, samples: int, chosen: Tensor, lead: int = 0) -> Tensor:
        return value

    def join(self, values: Sequence[Tensor], sizes: Sequence[int], lead: int = 0) -> Tensor:
        return values[0]


SHARED = Shared()


@dataclass(frozen=True)
class Layout(SampleLayout):
    """The batch lies in dimension ``dim``, whose size is ``outer * samples * inner``."""

    dim: int = 0
    outer: int = 1
    inner: int = 1

    batched = True

    @property
    def plain(self) -> bool:
        return self.dim == 0 and self.outer == self.inner == 1

    def count(self, samples: int) -> int:
        return samples

    def sample_shape(self, shape: Sequence[int]) -> torch.Size:
        before, after = shape[: self.dim], shape[self.dim + 1 :]
        merged = self.outer * self.inner
        if merged > 1:
            return torch.Size([*before, merged, *after])
        return torch.Size([*before, *after])

    def samples_first(self, rows: Tensor, samples: int) -> Tensor:
        count, *shape = rows.shape
        before, after = shape[: self.dim], shape[self.dim + 1 :]
        split = rows.reshape(count, *before, self.outer, samples, self.inner, *after)
        return split.movedim(self.dim + 2, 1).flatten(2)

    def sum(self, rows: Tensor, samples: int) -> Tensor:
        """``(rows, *shape) -> (rows, samples)``: the sum of each sample's elements."""
        if not self.plain:
            return self.samples_first(rows, samples).sum(2)
        if rows.dim() > 2:
            return rows.flatten(2).sum(2)
        return rows

    def dot(self, rows: Tensor, constant: Tensor, samples: int) -> Tensor:
        """``(rows, *shape), (*shape) or (rows, *shape) -> (rows, samples)``: inner products per
        sample."""
        return unless_infinite(
            lambda: self._dot(rows, constant, samples),
            lambda: self.sum(product(rows, constant), samples),
            constant,
        )

    def _dot(self, rows: Tensor, constant: Tensor, samples: int) -> Tensor:
        plain = self.plain
        places = rows.dim() - 3
        by_channel = (
            plain
            and constant.dim() > places > 0
            and constant.numel() == rows.shape[2] == constant.shape[-places - 1]
        )
        if by_channel and constant.dtype == rows.dtype:  # however the rows lie in memory
            return torch.matmul(rows.sum(tuple(range(3, rows.dim()))), constant.flatten())
        # the same for all samples
        if plain and constant.dim() < rows.dim() - 1 and constant.dtype == rows.dtype:
            vector = constant.expand(rows.shape[2:]).flatten()
            stacked = rows.reshape(len(rows) * samples, len(vector))
            return torch.mv(stacked, vector).reshape(len(rows), samples)
        if plain and constant.dim() < rows.dim():
            size = rows.shape[2:].numel()
            vectors = constant.expand(rows.shape[1:]).reshape(samples, size)
            return dots(rows.reshape(len(rows), samples, size), vectors)
        return self.sum(rows * constant, samples)

    def place(self, rows: Tensor, shape: torch.Size) -> Tensor:
        before, after = shape[: self.dim], shape[self.dim + 1 :]
        sizes = (*rows.shape[:2], *before, self.outer, self.inner, *after)
        if rows.numel():
            split = rows.reshape(sizes)
        else:
            split = rows.new_zeros(sizes)
        return split.movedim(1, self.dim + 2).reshape(rows.shape[0], *shape)

    def spread(self, numbers: Tensor, shape: torch.Size) -> Tensor:
        if self.plain:
            return numbers.reshape(*numbers.shape, *[1] * (len(shape) - 1))
        size = shape.numel() // numbers.shape[1]
        return self.place(numbers.unsqueeze(2).expand(-1, -1, size), shape)

    def separate(self, rows: Tensor, samples: int) -> Tensor:
        """``(rows, *shape) -> (rows, samples, *shape)``: copy b keeps only the elements of sample
        b.

        The transpose of an operator that reads a value without a batch dimension (a weight) sums
        over the samples. Applied to these copies it leaves each sample its own coefficients.
        """
        size = rows.shape[1 + self.dim]
        owner = torch.arange(size, device=rows.device) // self.inner % samples
        mask = owner == torch.arange(samples, device=rows.device)[:, None]  # (samples, size)
        mask = mask.reshape(samples, *[1] * self.dim, size, *[1] * (rows.dim() - 2 - self.dim))
        return rows.unsqueeze(1) * mask

    def take(self, value: Tensor, samples: int, chosen: Tensor, lead: int = 0) -> Tensor:
        dim = self.dim + lead
        if self.outer == self.inner == 1:
            return value.index_select(dim, chosen)
        split = value.unflatten(dim, (self.outer, samples, self.inner))
        return split.index_select(dim + 1, chosen).flatten(dim, dim + 2)

    def join(self, values: Sequence[Tensor], sizes: Sequence[int], lead: int = 0) -> Tensor:
        dim = self.dim + lead
        if self.outer == self.inner == 1:
            return torch.cat(list(values), dim)
        split = [
            value.unflatten(dim, (self.outer, size, self.inner))
            for value, size in zip(values, sizes, strict=True)
        ]
        return torch.cat(split, dim + 1).flatten(dim, dim + 2)
