"""Specifications as coefficients of an output node: given matrices, and single elements."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.window import Window
from boundlab.errors import ArgumentError
from boundlab.graph.layout import Layout

Rows = Tensor | Window


@dataclass(frozen=True, eq=False)
class Elements:
    """The elements of a node, sample by sample. layout: where the samples lie in its value; like: a
    tensor of the value's shape; batch: the samples in the batch."""

    layout: Layout | None
    like: Tensor
    batch: int

    @property
    def samples(self) -> int:
        return self.batch if self.layout is not None else 1

    @property
    def size(self) -> int:
        """How many elements one sample has."""
        if self.samples:
            return self.like.numel() // self.samples
        return math.prod(size for d, size in enumerate(self.like.shape) if not self._is_batch(d))

    def _is_batch(self, dim: int) -> bool:
        return self.layout is not None and dim == self.layout.dim

    def split(self, value: Tensor) -> Tensor:
        """A value of the node as (samples, size)."""
        if self.layout is None:
            return value.reshape(self.samples, -1)
        return self.layout.samples_first(value[None], self.samples)[0]

    def join(self, flat: Tensor) -> Tensor:
        """The inverse of :meth:`split`."""
        if self.layout is None:
            return flat.reshape(self.like.shape)
        return self.layout.place(flat[None], self.like.shape)[0]

    def place(self, rows: Tensor) -> Tensor:
        """Coefficients (rows, samples, size) in the layout of the node: (rows, *shape), or (rows,
        1, *shape) for a node without a batch."""
        if self.layout is None:
            return rows.reshape(-1, 1, *self.like.shape)
        return self.layout.place(rows, self.like.shape)

    def rows(self, chosen: Tensor, signs: Tensor) -> Rows:
        """Coefficients that pick one element of each sample, with a sign: both (rows, samples)."""
        if self.layout == Layout():
            return Window.units(signs, chosen, self.like.shape[1:])
        rows = torch.zeros(*chosen.shape, self.size, dtype=signs.dtype, device=signs.device)
        return self.place(rows.scatter_(2, chosen.unsqueeze(2), signs.unsqueeze(2)))

    def identity(self) -> Tensor:
        """Coefficients that pick every element of each sample, in order."""
        every = torch.arange(self.size, device=self.like.device)[:, None].expand(-1, self.samples)
        ones = torch.ones(every.shape, dtype=self.like.dtype, device=every.device)
        rows = self.rows(every, ones)
        return rows if isinstance(rows, Tensor) else rows.dense()

    def of_spec(self, spec: Tensor) -> Tensor:
        """A specification (specs, out) or (samples, specs, out) as coefficients of the node."""
        if spec.dim() == 2:
            spec = spec[None].expand(self.samples, -1, -1)
        if spec.dim() != 3 or spec.shape[0] != self.samples or spec.shape[2] != self.size:
            raise ArgumentError(
                f"spec must have the shape (specs, {self.size}) or ({self.samples}, specs, "
                f"{self.size}), as the output has {self.size} elements a sample; got "
                f"{tuple(spec.shape)}"
            )
        return self.place(spec.to(self.like).transpose(0, 1))
