"""Operators that are affine in their perturbed arguments, as relaxations of themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from boundlab.coefficients.window import Window
from boundlab.relaxations.broadcasting import align
from boundlab.relaxations.identity import IdentityForm, dense
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import (
    ForwardBound,
    Relaxation,
    Rows,
    RowsPerSample,
    Terms,
    add_constant,
)

Result = TypeVar("Result")
WindowTranspose = Callable[[Window], list[Window] | None]
"""Rows that vanish outside a window -> the same for each argument; None: it needs dense ones."""
PerSample = Callable[[Rows], Sequence[RowsPerSample]]
"""Rows -> what each sample asks of every argument."""


@dataclass(frozen=True, eq=False)
class AffineMap(Relaxation):
    """An operator that is affine in its perturbed arguments: exact, and needs no rule but
    autograd's.

    ``function``: the operator as a function of those arguments. ``absolute``: the same with every
    coefficient replaced by its absolute value, and no constant term; None if all coefficients of an
    argument have one sign, which ``signs`` gives (default: positive). ``arguments``: what is known
    of each argument. ``transpose``: rows -> rows for each argument where it is known in closed form
    (for speed; it equals autograd's), ``windows``: makes the same for rows that vanish outside a
    window, when the first of them come. ``unbiased``: the function without its constant term, where
    there is such a form. ``constant``: that term where it is known, broadcastable to the result;
    0.0 if there is none. ``per_sample``: the transpose with the rows of arguments without a batch
    kept apart by samples.
    """

    function: Callable[..., Tensor]
    absolute: Callable[..., Tensor] | None
    arguments: tuple[Interval, ...]
    transpose: Callable[[Rows], list[Rows]] | None = None
    constant: Tensor | float | None = None
    signs: tuple[int, ...] = ()
    windows: Callable[[], WindowTranspose | None] = lambda: None
    unbiased: Callable[..., Tensor] | None = None
    per_sample: PerSample | None = None

    @property
    def accepts_identity(self) -> bool:
        return True

    @property
    def linear(self) -> bool:
        return isinstance(self.constant, float)

    @cached_property
    def zeros(self) -> tuple[Tensor, ...]:
        return tuple(torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in self.arguments)

    @cached_property
    def _of_windows(self) -> WindowTranspose | None:
        return self.windows()

    @cached_property
    def offset(self) -> Tensor:
        """The constant term as a tensor."""
        if isinstance(self.constant, Tensor):
            return self.constant
        return self.function(*self.zeros)

    def _terms(self, rows: Rows) -> Terms:
        if self.linear:
            return []
        return [(rows, self.offset)]

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        if self.transpose is not None:
            coefficients = self.transpose(rows)
        else:
            pull = torch.func.vjp(self.function, *self.zeros)[1]
            coefficients = list(mapped(pull, [rows]))
        # of the precision of their argument, which the operator may have promoted
        coefficients = [
            part.to(x.dtype) for part, x in zip(coefficients, self.arguments, strict=True)
        ]
        return coefficients, self._terms(rows)

    def backward_per_sample(
        self, rows: Rows, shared: set[int]
    ) -> tuple[Sequence[RowsPerSample], Terms] | None:
        if self.per_sample is None:
            return None
        return self.per_sample(rows), self._terms(rows)

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        transpose = self._of_windows
        if transpose is None:
            return None
        rows = rows.zero_padded()
        coefficients = transpose(rows)
        if coefficients is None:
            return None
        coefficients = [
            _window_of_type(part, x.dtype)
            for part, x in zip(coefficients, self.arguments, strict=True)
        ]
        if self.linear:
            return coefficients, 0.0
        return coefficients, rows.dot(self.offset)

    def _of_units(self, units: Sequence[IdentityForm], per_sample: PerSample) -> ForwardBound:
        """The forms of what is read from sources without a batch alone: what every sample asks of
        them, with columns for rows."""
        constant = self.function(*self.zeros)
        samples, size = len(constant), constant.shape[1:].numel()
        eye = torch.eye(size, dtype=constant.dtype, device=constant.device)
        eye = eye.reshape(size, 1, *constant.shape[1:]).expand(size, *constant.shape)
        form = constant.new_zeros(units[0].columns + 1, *constant.shape)
        for unit, rows in zip(units, per_sample(eye), strict=True):
            if not isinstance(rows, Tensor):
                rows = rows.dense()
            width = rows.shape[2:].numel()
            columns = rows.reshape(size, samples, width).permute(2, 1, 0)
            form[unit.first : unit.first + width] = columns.reshape(width, *constant.shape)
        form[-1] = constant
        return form

    def apply(self, forms: Sequence[ForwardBound | IdentityForm]) -> ForwardBound:
        """The linear part on every column, the whole function on the constant term."""
        units = [form for form in forms if isinstance(form, IdentityForm)]
        if self.per_sample is not None and len(units) == len(forms):
            return self._of_units(units, self.per_sample)
        return self._apply([dense(form) for form in forms])

    def _apply(self, forms: Sequence[ForwardBound]) -> ForwardBound:
        if self.linear:
            return mapped(self.function, forms)
        if self.unbiased is not None:
            return add_constant(mapped(self.unbiased, forms), self.offset)
        constant = self.function(*[form[-1] for form in forms]).unsqueeze(0)
        return torch.cat([mapped(self._linear_part, [form[:-1] for form in forms]), constant])

    @cached_property
    def _linear_part(self) -> Callable[..., Tensor]:
        """The operator without its constant term, as the transpose of its transpose: a difference
        ``f(x) - f(0)`` would lose small coefficients beside a large constant."""
        result, pull = torch.func.vjp(self.function, *self.zeros)[:2]
        push = torch.func.vjp(pull, torch.zeros_like(result))[1]
        return lambda *columns: push(tuple(columns))[0]

    def forward(
        self,
        lower: Sequence[ForwardBound | IdentityForm],
        upper: Sequence[ForwardBound | IdentityForm],
    ) -> tuple[ForwardBound, ForwardBound]:
        if all(low is up for low, up in zip(lower, upper, strict=True)):
            result = self.apply(lower)
            return result, result
        lows, ups = [dense(form) for form in lower], [dense(form) for form in upper]
        if self.absolute is None:
            signs = self.signs or (1,) * len(lows)
            least, most = [], []
            for low, up, sign in zip(lows, ups, signs, strict=True):
                if sign < 0:
                    low, up = up, low
                least.append(low)
                most.append(up)
            return self.apply(least), self.apply(most)
        # W+ l + W- u = W (l + u)/2 - |W| (u - l)/2, and likewise above.
        middle = self.apply([torch.lerp(low, up, 0.5) for low, up in zip(lows, ups, strict=True)])
        spread = mapped(self.absolute, [up - low for low, up in zip(lows, ups, strict=True)])
        spread = align(spread, middle.dim() - 1)
        return torch.sub(middle, spread, alpha=0.5), torch.add(middle, spread, alpha=0.5)


def _window_of_type(rows: Window, dtype: torch.dtype) -> Window:
    if rows.values.dtype == dtype:
        return rows
    return rows.with_values(rows.values.to(dtype), rows.clean)


def mapped(function: Callable[..., Result], rows: Sequence[Tensor]) -> Result:
    """The function on every row."""
    with warnings.catch_warnings():  # a missing batching rule costs time, nothing else
        warnings.filterwarnings("ignore", "There is a performance drop")
        return torch.func.vmap(function)(*rows)
