"""Specifications as coefficients of an output node: given matrices, and single elements."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.coefficients.dense import Dense, placed
from boundlab.coefficients.window import Window
from boundlab.errors import ArgumentError
from boundlab.graph.layout import SampleLayout


@dataclass(frozen=True, eq=False)
class Elements:
    """The elements of a node, sample by sample. layout: where the samples lie in its value; like: a
    tensor of the value's shape; batch: the samples in the batch."""

    layout: SampleLayout
    like: Tensor
    batch: int

    @property
    def samples(self) -> int:
        return self.layout.count(self.batch)

    @property
    def size(self) -> int:
        """How many elements one sample has."""
        return self.layout.sample_shape(self.like.shape).numel()

    def split(self, value: Tensor) -> Tensor:
        """A value of the node as (samples, size)."""
        return self.layout.samples_first(value[None], self.samples)[0]

    def join(self, flat: Tensor) -> Tensor:
        """The inverse of :meth:`split`."""
        return self.layout.place(flat[None], self.like.shape)[0]

    def place(self, rows: Tensor) -> Dense:
        """Coefficients (rows, samples, size) as those of the node."""
        return placed(rows, self.layout, self.like.shape, self.samples)

    def rows(self, chosen: Tensor, signs: Tensor) -> Coefficients:
        """Coefficients that pick one element of each sample, with a sign: both (rows, samples)."""
        if self.layout.plain:
            return Window.units(signs, chosen, self.like.shape[1:])
        rows = torch.zeros(*chosen.shape, self.size, dtype=signs.dtype, device=signs.device)
        return self.place(rows.scatter_(2, chosen.unsqueeze(2), signs.unsqueeze(2)))

    def identity(self) -> Dense:
        """Coefficients that pick every element of each sample, in order."""
        every = torch.arange(self.size, device=self.like.device)[:, None].expand(-1, self.samples)
        ones = torch.ones(every.shape, dtype=self.like.dtype, device=every.device)
        return self.rows(every, ones).whole()

    def of_spec(self, spec: Tensor) -> Dense:
        """A specification (specs, out) or (samples, specs, out) as coefficients of the node."""
        given = tuple(spec.shape)
        if spec.dim() == 2:
            spec = spec[None].expand(self.samples, -1, -1)
        if spec.dim() != 3 or spec.shape[0] != self.samples or spec.shape[2] != self.size:
            raise ArgumentError(
                f"spec must have the shape (specs, {self.size}) or ({self.samples}, specs, "
                f"{self.size}), as the output has {self.size} elements a sample; got "
                f"{given}"
            )
        return self.place(spec.to(self.like).transpose(0, 1))
