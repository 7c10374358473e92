"""Relaxations of sums of products: a plane below and a plane above for every product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.window import Placement, Window
from boundlab.kernels.reductions import seems_finite
from boundlab.relaxations.broadcasting import one_a_sample, sum_per_sample, sum_to
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
        return None if one_a_sample(rows, self.shapes, shared) else self._pulled(rows, shared)

    def _pulled(self, rows: Rows, shared: set[int]) -> tuple[list[Rows], Terms]:
        positive, negative = rows.clamp(min=0), rows.clamp(max=0)
        terms: Terms = [(positive, self.lower_bias), (negative, self.upper_bias)]
        squeezed = [d + 1 for d in self.kept]
        positive, negative = positive.squeeze(squeezed), negative.squeeze(squeezed)
        out = []
        for k, (letters, low, up, shape) in enumerate(
            zip(self.arguments, self.lower, self.upper, self.shapes, strict=True)
        ):
            kept = self.result[0] + letters.replace(self.result[0], "") if k in shared else letters
            equation = f"R{self._summed_result},{self.space}->R{kept}"
            coefficients = torch.einsum(equation, positive, low) + torch.einsum(
                equation, negative, up
            )
            out.append(
                sum_per_sample(coefficients, shape) if k in shared else sum_to(coefficients, shape)
            )
        return out, terms

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        """Slopes are cut to the window in the letters of y and whole in those that are summed
        over."""
        batch, sizes = (
            self.space[0],
            dict(zip(self.result, (rows.values.shape[1], *rows.places.shape), strict=True)),
        )
        for letters, shape in zip(self.arguments, self.shapes, strict=True):
            for letter, size in zip(letters, shape, strict=True):
                if sizes.setdefault(letter, size) != size:
                    return None  # an argument that is broadcast
        if (
            self.kept
            or self.result[0] != batch
            or any(letters[0] != batch for letters in self.arguments)
        ):
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
            parts = [
                torch.einsum(equation, c, _spread(space.take(slope, bounded=False), c))
                for c, slope in ((positive, low), (negative, up))
            ]
            out.append(Window(parts[0] + parts[1], within(letters[1:])))
        return out, dots_of_windows(
            [
                (rows.with_values(positive), self.lower_bias),
                (rows.with_values(negative), self.upper_bias),
            ]
        )

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
                used = (
                    torch.einsum(f"{self.space}->{letters}", ((a != 0) | (b != 0)).to(a.dtype)) > 0
                )
                low_form, up_form = torch.where(used, low_form, 0), torch.where(used, up_form, 0)
            low = (
                low
                + torch.einsum(equation, a.clamp(min=0), low_form)
                + torch.einsum(equation, a.clamp(max=0), up_form)
            )
            up = (
                up
                + torch.einsum(equation, b.clamp(min=0), up_form)
                + torch.einsum(equation, b.clamp(max=0), low_form)
            )
        assert isinstance(low, Tensor) and isinstance(up, Tensor)
        for d in self.kept:
            low, up = low.unsqueeze(d + 1), up.unsqueeze(d + 1)
        return add_constant(low, self.lower_bias), add_constant(up, self.upper_bias)


def _spread(slope: Tensor, rows: Tensor) -> Tensor:
    """A slope with as many rows as the coefficients it meets."""
    return slope.expand(rows.shape[0], rows.shape[1], *slope.shape[2:])
