"""Relaxations of elementwise operators: a line below and a line above for every element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.window import Window
from boundlab.kernels.reductions import spares
from boundlab.relaxations.broadcasting import align, one_a_sample, undo_broadcasting
from boundlab.relaxations.interval import Interval, Value
from boundlab.relaxations.relaxation import (
    ForwardBound,
    Relaxation,
    Rows,
    Terms,
    add_constant,
    dots_of_windows,
)


@dataclass(frozen=True, eq=False)
class Lines(Relaxation):
    """Elementwise with broadcasting: one slope per element of y and argument, one intercept per
    element of y (None: 0)."""

    lower: tuple[Tensor, ...]
    lower_bias: Tensor | None
    upper: tuple[Tensor, ...]
    upper_bias: Tensor | None
    shapes: tuple[torch.Size, ...]

    def _mixed(
        self, rows: Tensor, positive: Tensor, negative: Tensor, low: Tensor, up: Tensor
    ) -> Tensor:
        """c+ low + c- up. With lines through the origin, whose slopes are of one size, as c low +
        c- (up - low): then the positive part of the rows is not needed at all."""
        if low is up:
            return rows * low
        if positive is rows:
            up = up - low
        return (positive * low).addcmul_(negative, up)

    def _parts(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The positive part of the rows, or all of them where that will do, and the negative
        one."""
        negative = rows.clamp(max=0)
        if self.lower_bias is None:
            return rows, negative
        return rows.clamp(min=0), negative

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        return self._pulled(rows, set())

    def backward_per_sample(self, rows: Rows, shared: set[int]) -> tuple[list[Rows], Terms] | None:
        if one_a_sample(rows, self.shapes, shared):
            return None
        return self._pulled(rows, shared)

    def _pulled(self, rows: Rows, shared: set[int]) -> tuple[list[Rows], Terms]:
        positive, negative = self._parts(rows)
        out = []
        slopes = zip(self.lower, self.upper, self.shapes, strict=True)
        for k, (low, up, shape) in enumerate(slopes):
            mixed = self._mixed(rows, positive, negative, low, up)
            out.append(undo_broadcasting(mixed, shape, per_sample=k in shared))
        return out, _terms(positive, self.lower_bias, negative, self.upper_bias)

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        shape = torch.Size((rows.values.shape[1], *rows.places.shape))
        if any(argument != shape for argument in self.shapes):
            return None
        out = []
        positive, negative = self._parts(rows.values)
        for low, up in zip(self.lower, self.upper, strict=True):
            below = above = rows.take(low)
            if up is not low:
                above = rows.take(up)
            mixed = self._mixed(rows.values, positive, negative, below, above)
            out.append(rows.with_values(mixed))
        terms = [
            (rows.with_values(part, rows.clean), constant)
            for part, constant in _terms(positive, self.lower_bias, negative, self.upper_bias)
        ]
        return out, dots_of_windows(terms)

    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        ndim = self.lower[0].dim()
        low: Tensor | None = None
        up: Tensor | None = None
        for a, b, low_form, up_form in zip(self.lower, self.upper, lower, upper, strict=True):
            low_form, up_form = align(low_form, ndim), align(up_form, ndim)
            low = _plus(low, _signed(a, low_form, up_form))
            up = _plus(up, _signed(b, up_form, low_form))
        assert low is not None and up is not None
        return add_constant(low, self.lower_bias), add_constant(up, self.upper_bias)


def constant_lines(bounds: Interval, inputs: Sequence[Interval]) -> Lines:
    """The relaxation that knows only an interval: slope zero in every perturbed argument."""
    kinds = (x.dtype for x in (bounds, *inputs) if x.dtype.is_floating_point)
    dtype = next(kinds, torch.get_default_dtype())
    lower, upper = bounds.lower.to(dtype), bounds.upper.to(dtype)
    zeros = tuple(torch.zeros(bounds.shape, dtype=dtype, device=bounds.device) for _ in inputs)
    return Lines(zeros, lower, zeros, upper, tuple(x.shape for x in inputs))


def lines_of_perturbed(
    values: Sequence[Value],
    lower: Sequence[Tensor],
    lower_bias: Tensor,
    upper: Sequence[Tensor],
    upper_bias: Tensor,
) -> Lines:
    """Lines with a slope for every argument; what constant ones add goes into the intercepts."""
    lows, ups, shapes = [], [], []
    for value, a, b in zip(values, lower, upper, strict=True):
        if isinstance(value, Interval):
            lows.append(a)
            ups.append(b)
            shapes.append(value.shape)
        else:
            lower_bias, upper_bias = lower_bias + a * value, upper_bias + b * value
    return Lines(tuple(lows), lower_bias, tuple(ups), upper_bias, tuple(shapes))


def _terms(positive: Rows, lower: Tensor | None, negative: Rows, upper: Tensor | None) -> Terms:
    """A positive coefficient takes the lower constant, a negative one the upper; None is 0."""
    return [
        (rows, constant)
        for rows, constant in ((positive, lower), (negative, upper))
        if constant is not None
    ]


def _plus(total: Tensor | None, part: Tensor) -> Tensor:
    """A sum that begins with its first part."""
    if total is None:
        return part
    return total + part


def _signed(slope: Tensor, rising: ForwardBound, falling: ForwardBound) -> ForwardBound:
    """A slope times one form where it is positive and times the other where it is negative."""
    if spares(slope >= 0):
        return slope * rising
    return slope.clamp(min=0) * rising + slope.clamp(max=0) * falling
