"""Relaxations of sums of products: a plane below and a plane above for every product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.placement import Placement
from boundlab.coefficients.window import Window
from boundlab.kernels.reductions import seems_finite
from boundlab.relaxations.broadcasting import one_a_sample, undo_broadcasting
from boundlab.relaxations.relaxation import (
    ForwardBound,
    Relaxation,
    Rows,
    Terms,
    add_constant,
    dots_of_windows,
)


@dataclass(frozen=True, eq=False)
class Planes(Relaxation):
    """y = a sum over a space of products: slopes live on that space, whose indices are letters.

    ``space``: all letters, ``result``: those of y, ``arguments``: those of each argument. A slope
    tensor has one dimension per letter of ``space`` (of size 1 where it does not vary). ``kept``:
    dimensions of y that stay with size 1 though they are summed over (keepdim).
    """

    space: str
    result: str
    arguments: tuple[str, ...]
    lower: tuple[Tensor, ...]
    lower_bias: Tensor
    upper: tuple[Tensor, ...]
    upper_bias: Tensor
    shapes: tuple[torch.Size, ...]
    kept: tuple[int, ...] = ()

    @property
    def _summed_result(self) -> str:
        return "".join(letter for i, letter in enumerate(self.result) if i not in self.kept)

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        return self._pulled(rows, set())

    def backward_per_sample(self, rows: Rows, shared: set[int]) -> tuple[list[Rows], Terms] | None:
        if one_a_sample(rows, self.shapes, shared):
            return None
        return self._pulled(rows, shared)

    def _pulled(self, rows: Rows, shared: set[int]) -> tuple[list[Rows], Terms]:
        positive, negative = rows.clamp(min=0), rows.clamp(max=0)
        terms: Terms = [(positive, self.lower_bias), (negative, self.upper_bias)]
        squeezed = [d + 1 for d in self.kept]
        positive, negative = positive.squeeze(squeezed), negative.squeeze(squeezed)
        out = []
        for k, (letters, low, up, shape) in enumerate(
            zip(self.arguments, self.lower, self.upper, self.shapes, strict=True)
        ):
            kept = letters
            if k in shared:  # the samples are not summed over, and come first
                kept = self.result[0] + letters.replace(self.result[0], "")
            equation = f"R{self._summed_result},{self.space}->R{kept}"
            pulled = torch.einsum(equation, positive, low)
            pulled = pulled + torch.einsum(equation, negative, up)
            out.append(undo_broadcasting(pulled, shape, per_sample=k in shared))
        return out, terms

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        """Slopes are cut to the window in the letters of y and whole in those that are summed
        over."""
        sizes = self._sizes(rows)
        if sizes is None or self.kept or not self._samples_come_first:
            return None
        rows = rows.zero_padded()
        runs = dict(zip(self.result[1:], rows.places.runs, strict=True))
        extents = dict(zip(self.result[1:], rows.places.sizes, strict=True))

        def within(letters: str) -> Placement:
            return Placement(
                tuple(sizes[c] for c in letters),
                tuple(extents.get(c, sizes[c]) for c in letters),
                tuple(runs.get(c) for c in letters),
            )

        space = within(self.space[1:])
        positive, negative = rows.values.clamp(min=0), rows.values.clamp(max=0)
        out = []
        for letters, low, up in zip(self.arguments, self.lower, self.upper, strict=True):
            equation = f"R{self.result},R{self.space}->R{letters}"
            pulled = torch.einsum(equation, positive, _seen(low, space, positive))
            pulled = pulled + torch.einsum(equation, negative, _seen(up, space, negative))
            out.append(Window(pulled, within(letters[1:])))
        below = rows.with_values(positive), self.lower_bias
        above = rows.with_values(negative), self.upper_bias
        return out, dots_of_windows([below, above])

    def _sizes(self, rows: Window) -> dict[str, int] | None:
        """How many values each letter has; None if an argument is broadcast."""
        shape = (rows.values.shape[1], *rows.places.shape)
        sizes = dict(zip(self.result, shape, strict=True))
        for letters, argument in zip(self.arguments, self.shapes, strict=True):
            for letter, size in zip(letters, argument, strict=True):
                if sizes.setdefault(letter, size) != size:
                    return None
        return sizes

    @property
    def _samples_come_first(self) -> bool:
        return all(letters[0] == self.space[0] for letters in (self.result, *self.arguments))

    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        low: Tensor | float = 0.0
        up: Tensor | float = 0.0
        for letters, a, b, low_form, up_form in zip(
            self.arguments, self.lower, self.upper, lower, upper, strict=True
        ):
            equation = f"{self.space},R{letters}->R{self._summed_result}"
            if not seems_finite(low_form, up_form):  # a masked score has no slope
                sloping = ((a != 0) | (b != 0)).to(a.dtype)
                used = torch.einsum(f"{self.space}->{letters}", sloping) > 0
                low_form, up_form = torch.where(used, low_form, 0), torch.where(used, up_form, 0)
            low = low + torch.einsum(equation, a.clamp(min=0), low_form)
            low = low + torch.einsum(equation, a.clamp(max=0), up_form)
            up = up + torch.einsum(equation, b.clamp(min=0), up_form)
            up = up + torch.einsum(equation, b.clamp(max=0), low_form)
        assert isinstance(low, Tensor) and isinstance(up, Tensor)
        for d in self.kept:
            low, up = low.unsqueeze(d + 1), up.unsqueeze(d + 1)
        return add_constant(low, self.lower_bias), add_constant(up, self.upper_bias)


def _seen(slope: Tensor, space: Placement, rows: Tensor) -> Tensor:
    """What is seen of a slope through a window, with as many rows as the coefficients it meets."""
    slope = space.take(slope, bounded=False)
    return slope.expand(rows.shape[0], rows.shape[1], *slope.shape[2:])
