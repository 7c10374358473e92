"""Linear relaxations: the oracle functions F (backward) and G (forward) of the paper.

A relaxation bounds the result y of one operator by linear functions of its perturbed arguments x_1
... x_m:

    sum_k lower_k x_k + lower_bias  <=  y  <=  sum_k upper_k x_k + upper_bias.

Backward takes rows ``c`` of shape (rows, *shape of y) and returns coefficients c_k for the
arguments and constant terms such that ``sum_k c_k . x_k + sum of terms <= c . y``: only lower
bounds, since an upper bound of h is minus a lower bound of -h. A term is a pair (rows, constant)
that stands for their inner product per sample, which need not be formed. Forward takes the linear
bounds of the arguments in the sources, of shape (columns + 1, *shape) with the constant term last,
and returns those of y.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from boundlab.coefficients.window import Placement, Window
from boundlab.errors import ArgumentError
from boundlab.kernels.reductions import seems_finite, spares
from boundlab.relaxations.interval import Interval

Rows = Tensor
"""(rows, *shape of a node): one-sided coefficient rows."""
Terms = list[tuple[Rows, Tensor | None]]
"""Constants of a backward step, as pairs whose inner products per sample are to be added; None for
a sum."""
ForwardBound = Tensor
"""(columns + 1, *shape of a node): a linear function of the sources, constant term last."""


@dataclass(frozen=True, eq=False)
class IdentityForm:
    """The form of a source without a batch, which is itself: the columns from ``first`` on, of so
    many. Not made where that can be helped: for a weight it has as many entries as the square of
    the weight's."""

    first: int
    columns: int
    source: Interval

    def dense(self) -> ForwardBound:
        shape, size = self.source.shape, self.source.shape.numel()
        form = torch.zeros(
            self.columns + 1, size, dtype=self.source.dtype, device=self.source.device
        )
        form[self.first : self.first + size].fill_diagonal_(1)
        return form.reshape(-1, *shape)


def dense(form: ForwardBound | IdentityForm) -> ForwardBound:
    return form.dense() if isinstance(form, IdentityForm) else form


class Relaxation(ABC):
    """Base class of all relaxations. ``backward`` and ``forward`` are its two oracle functions; the
    others are faster ways for special coefficients, which a relaxation may decline by None."""

    @abstractmethod
    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        """Propagate coefficients (rows, *shape of y) backward: coefficients (rows, *shape of x_k)
        of every argument, and the constant terms that they leave."""

    @abstractmethod
    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        """Propagate linear bounds (columns + 1, *shape of x_k) of the arguments forward: lower and
        upper linear bounds (columns + 1, *shape of y) of y in the sources."""

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        """``backward`` for coefficients that vanish outside a window, with the constant (rows,
        samples) itself instead of terms; None: it needs dense coefficients."""
        return None

    def backward_per_sample(self, rows: Rows, shared: set[int]) -> tuple[list[Any], Terms] | None:
        """``backward`` for samples in dimension 0, with one coefficient a sample, (rows, samples,
        *shape), for the arguments ``shared``, which have no batch; None: it has no such form."""
        return None

    @property
    def accepts_identity(self) -> bool:
        """Whether ``forward`` takes an :class:`IdentityForm` as it is; else dense bounds."""
        return False


def checked(relaxation: Any, node: object) -> Relaxation:
    """The relaxation that a rule made for a node, or an error that names the node if it is none."""
    if not isinstance(relaxation, Relaxation):
        raise ArgumentError(
            f"{node}: what its rule returns from relax() must derive from "
            f"boundlab.relaxations.relaxation.Relaxation, not {type(relaxation).__name__}"
        )
    return relaxation


def sum_to(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """Undo broadcasting behind the leading dimension: (rows, *big) -> (rows, *shape)."""
    if tuple(rows.shape[1:]) == tuple(shape):
        return rows
    extra = rows.dim() - 1 - len(shape)
    if extra:
        rows = rows.sum(dim=tuple(range(1, 1 + extra)))
    shrunk = [
        1 + i
        for i, (have, want) in enumerate(zip(rows.shape[1:], shape, strict=True))
        if have != want
    ]
    return rows.sum(dim=shrunk, keepdim=True) if shrunk else rows


def sum_per_sample(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """Undo broadcasting of a value without samples, sample by sample: (rows, samples, *big) ->
    (rows, samples, *shape)."""
    # a 1 may stand for the samples
    wide = [1] * (rows.dim() - 2 - len(shape)) + list(shape)[max(0, len(shape) - rows.dim() + 2) :]
    return sum_to(rows.flatten(0, 1), wide).reshape(*rows.shape[:2], *shape)


def _one_a_sample(rows: Tensor, shapes: Sequence[torch.Size], shared: set[int]) -> bool:
    """Whether a value without samples has an entry for each of them all the same (a weight that was
    expanded to the batch)."""
    return any(len(shapes[k]) == rows.dim() - 1 and shapes[k][0] != 1 for k in shared)


def align(form: Tensor, ndim: int) -> Tensor:
    """(columns, *shape) with ones put in so that ``shape`` broadcasts against a value of ``ndim``
    dimensions."""
    return form.reshape(form.shape[0], *[1] * (ndim + 1 - form.dim()), *form.shape[1:])


def add_constant(form: ForwardBound, constant: Tensor | None) -> ForwardBound:
    """Add to the constant term of a form that nothing else refers to."""
    if constant is not None:
        form[-1] += constant
    return form


def _signed(slope: Tensor, rising: ForwardBound, falling: ForwardBound) -> ForwardBound:
    """A slope times one form where it is positive and times the other where it is negative."""
    if spares(slope >= 0):
        return slope * rising
    return slope.clamp(min=0) * rising + slope.clamp(max=0) * falling


def _terms(positive: Rows, lower: Tensor | None, negative: Rows, upper: Tensor | None) -> Terms:
    """A positive coefficient takes the lower constant, a negative one the upper; None is 0."""
    return [
        (rows, constant)
        for rows, constant in ((positive, lower), (negative, upper))
        if constant is not None
    ]


def _dots(terms: list[tuple[Window, Tensor | None]]) -> Tensor | float:
    total: Tensor | float = 0.0
    for rows, constant in terms:
        total = total + (rows.values.flatten(2).sum(2) if constant is None else rows.dot(constant))
    return total


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
        return (positive * low).addcmul_(negative, up if positive is not rows else up - low)

    def _parts(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return rows if self.lower_bias is None else rows.clamp(min=0), rows.clamp(max=0)

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        positive, negative = self._parts(rows)
        mixed = [
            self._mixed(rows, positive, negative, low, up)
            for low, up in zip(self.lower, self.upper, strict=True)
        ]
        return [
            sum_to(part, shape) for part, shape in zip(mixed, self.shapes, strict=True)
        ], _terms(positive, self.lower_bias, negative, self.upper_bias)

    def backward_per_sample(self, rows: Rows, shared: set[int]) -> tuple[list[Rows], Terms] | None:
        if _one_a_sample(rows, self.shapes, shared):
            return None
        positive, negative = self._parts(rows)
        mixed = [
            self._mixed(rows, positive, negative, low, up)
            for low, up in zip(self.lower, self.upper, strict=True)
        ]
        found = [
            sum_per_sample(part, shape) if k in shared else sum_to(part, shape)
            for k, (part, shape) in enumerate(zip(mixed, self.shapes, strict=True))
        ]
        return found, _terms(positive, self.lower_bias, negative, self.upper_bias)

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        shape = torch.Size((rows.values.shape[1], *rows.places.shape))
        if any(argument != shape for argument in self.shapes):
            return None
        out = []
        positive, negative = self._parts(rows.values)
        for low, up in zip(self.lower, self.upper, strict=True):
            taken = rows.take(low)
            out.append(
                rows.with_values(
                    self._mixed(
                        rows.values,
                        positive,
                        negative,
                        taken,
                        taken if low is up else rows.take(up),
                    )
                )
            )
        terms = _terms(positive, self.lower_bias, negative, self.upper_bias)
        return out, _dots(
            [(rows.with_values(part, rows.clean), constant) for part, constant in terms]
        )

    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        ndim = self.lower[0].dim()
        low: Tensor | None = None
        up: Tensor | None = None
        for a, b, low_form, up_form in zip(self.lower, self.upper, lower, upper, strict=True):
            low_form, up_form = align(low_form, ndim), align(up_form, ndim)
            low_part, up_part = _signed(a, low_form, up_form), _signed(b, up_form, low_form)
            low = low_part if low is None else low + low_part
            up = up_part if up is None else up + up_part
        assert low is not None and up is not None
        return add_constant(low, self.lower_bias), add_constant(up, self.upper_bias)


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
        return None if _one_a_sample(rows, self.shapes, shared) else self._pulled(rows, shared)

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
        return out, _dots(
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


def mapped(function: Callable[..., Any], rows: Sequence[Tensor]) -> Any:
    """The function on every row."""
    with warnings.catch_warnings():  # a missing batching rule costs time, nothing else
        warnings.filterwarnings("ignore", "There is a performance drop")
        return torch.func.vmap(function)(*rows)


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
    0.0 if there is none. ``apart``: the transpose with the rows of arguments without a batch kept
    apart by samples.
    """

    function: Callable[..., Tensor]
    absolute: Callable[..., Tensor] | None
    arguments: tuple[Interval, ...]
    transpose: Callable[[Rows], list[Rows]] | None = None
    constant: Tensor | float | None = None
    signs: tuple[int, ...] = ()
    windows: Callable[[], Callable[[Window], list[Window] | None] | None] = lambda: None
    unbiased: Callable[..., Tensor] | None = None
    per_sample: Callable[[Rows], list[Any]] | None = None

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
    def _of_windows(self) -> Callable[[Window], list[Window] | None] | None:
        return self.windows()

    @cached_property
    def offset(self) -> Tensor:
        return self.constant if isinstance(self.constant, Tensor) else self.function(*self.zeros)

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        if self.transpose is not None:
            coefficients = self.transpose(rows)
        else:
            pull = torch.func.vjp(self.function, *self.zeros)[1]
            coefficients = list(mapped(pull, [rows]))
        # of the precision of their argument, which the operator may have promoted
        coefficients = [
            part if part.dtype == x.dtype else part.to(x.dtype)
            for part, x in zip(coefficients, self.arguments, strict=True)
        ]
        return coefficients, [] if self.linear else [(rows, self.offset)]

    def backward_per_sample(self, rows: Rows, shared: set[int]) -> tuple[list[Any], Terms] | None:
        if self.per_sample is None:
            return None
        return self.per_sample(rows), [] if self.linear else [(rows, self.offset)]

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        transpose = self._of_windows
        if transpose is None:
            return None
        rows = rows.zero_padded()
        coefficients = transpose(rows)
        if coefficients is None:
            return None
        coefficients = [
            part
            if part.values.dtype == x.dtype
            else part.with_values(part.values.to(x.dtype), part.clean)
            for part, x in zip(coefficients, self.arguments, strict=True)
        ]
        return coefficients, 0.0 if self.linear else rows.dot(self.offset)

    def _of_units(
        self, units: Sequence[IdentityForm], per_sample: Callable[[Rows], list[Any]]
    ) -> ForwardBound:
        """The forms of what is read from sources without a batch alone: what every sample asks of
        them, with columns for rows."""
        constant = self.function(*self.zeros)
        samples, size = len(constant), constant[0].numel()
        eye = torch.eye(size, dtype=constant.dtype, device=constant.device).reshape(
            size, 1, *constant.shape[1:]
        )
        form = constant.new_zeros(units[0].columns + 1, *constant.shape)
        for unit, rows in zip(units, per_sample(eye.expand(size, *constant.shape)), strict=True):
            columns = (
                (rows if isinstance(rows, Tensor) else rows.dense())
                .reshape(size, samples, -1)
                .permute(2, 1, 0)
            )
            form[unit.first : unit.first + len(columns)] = columns.reshape(-1, *constant.shape)
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
            pairs = [
                (low, up) if sign > 0 else (up, low)
                for low, up, sign in zip(lows, ups, signs, strict=True)
            ]
            return self.apply([least for least, _ in pairs]), self.apply(
                [most for _, most in pairs]
            )
        # W+ l + W- u = W (l + u)/2 - |W| (u - l)/2, and likewise above.
        middle = self.apply([torch.lerp(low, up, 0.5) for low, up in zip(lows, ups, strict=True)])
        spread = mapped(self.absolute, [up - low for low, up in zip(lows, ups, strict=True)])
        spread = align(spread, middle.dim() - 1)
        return torch.sub(middle, spread, alpha=0.5), torch.add(middle, spread, alpha=0.5)


def constant_lines(bounds: Interval, inputs: Sequence[Interval]) -> Lines:
    """The relaxation that knows only an interval: slope zero in every perturbed argument."""
    kinds = [x.dtype for x in (bounds, *inputs) if x.dtype.is_floating_point]
    dtype = kinds[0] if kinds else torch.get_default_dtype()
    zeros = tuple(torch.zeros(bounds.shape, dtype=dtype, device=bounds.device) for _ in inputs)
    return Lines(
        zeros, bounds.lower.to(dtype), zeros, bounds.upper.to(dtype), tuple(x.shape for x in inputs)
    )
