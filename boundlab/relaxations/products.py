"""Relaxations of products as operators, without a slope for every elementary product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from boundlab.coefficients.window import Window
from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.relaxation import (
    ForwardBound,
    Relaxation,
    Rows,
    RowsPerSample,
    Terms,
    add_constant,
)


@dataclass(frozen=True, eq=False)
class CentreForm(Relaxation):
    """The relaxation of any bilinear B with non-negative coefficients, both arguments perturbed,
    without its products.

    x y = cx y + cy x - cx cy + (x - cx)(y - cy), and the last term lies in [-rx ry, rx ry]; B sums
    such products.
    """

    in_x: AffineMap  # x -> B(x, cy)
    in_y: AffineMap  # y -> B(cx, y)
    centre: Tensor  # B(cx, cy)
    slack: Tensor  # B(rx, ry)

    @property
    def accepts_identity(self) -> bool:
        return True

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        x_rows, _ = self.in_x.backward(rows)
        y_rows, _ = self.in_y.backward(rows)
        return [*x_rows, *y_rows], self._terms(rows)

    def _terms(self, rows: Rows) -> Terms:
        return [(rows, -self.centre), (rows.abs(), -self.slack)]

    def backward_per_sample(
        self, rows: Rows, shared: set[int]
    ) -> tuple[Sequence[RowsPerSample], Terms] | None:
        if shared != {1} or self.in_y.per_sample is None:
            return None
        x_rows, _ = self.in_x.backward(rows)
        return [*x_rows, *self.in_y.per_sample(rows)], self._terms(rows)

    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        low_x, up_x = self.in_x.forward(lower[:1], upper[:1])
        low_y, up_y = self.in_y.forward(lower[1:], upper[1:])
        lower_bias, upper_bias = -self.centre - self.slack, self.slack - self.centre
        return add_constant(low_x + low_y, lower_bias), add_constant(up_x + up_y, upper_bias)


@dataclass(frozen=True, eq=False)
class SignedForm(Relaxation):
    """The McCormick planes of a bilinear B whose first side is not negative, as operators instead
    of slopes for every product: with x = xl + (x - xl) and y between yl and yu,  xl y + (x - xl) yl
    <= x y <= xl y + (x - xl) yu.
    """

    below: AffineMap  # x -> B(x, yl)
    above: AffineMap  # x -> B(x, yu)
    in_y: AffineMap  # y -> B(xl, y)
    lower_bias: Tensor  # -B(xl, yl)
    upper_bias: Tensor  # -B(xl, yu)
    make: Callable[[], Relaxation]

    @cached_property
    def planes(self) -> Relaxation:
        """The same as slopes, for windows."""
        return self.make()

    def _in_x(self, rows: Rows) -> tuple[Rows, Terms]:
        positive, negative = rows.clamp(min=0), rows.clamp(max=0)
        of_x = self.below.backward(positive)[0][0] + self.above.backward(negative)[0][0]
        return of_x, [(positive, self.lower_bias), (negative, self.upper_bias)]

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        of_x, terms = self._in_x(rows)
        return [of_x, *self.in_y.backward(rows)[0]], terms

    def backward_per_sample(
        self, rows: Rows, shared: set[int]
    ) -> tuple[Sequence[RowsPerSample], Terms] | None:
        if shared != {1} or self.in_y.per_sample is None:
            return None
        of_x, terms = self._in_x(rows)
        return [of_x, *self.in_y.per_sample(rows)], terms

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        return self.planes.backward_window(rows)

    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        low, _ = self.below.forward(lower[:1], upper[:1])
        _, up = self.above.forward(lower[:1], upper[:1])
        low_y, up_y = self.in_y.forward(lower[1:], upper[1:])
        return add_constant(low + low_y, self.lower_bias), add_constant(up + up_y, self.upper_bias)


@dataclass(frozen=True, eq=False)
class WithBias(Relaxation):
    """A relaxation of the first arguments plus a last argument added to the result (the bias of a
    layer)."""

    body: Relaxation
    bias: AffineMap

    @property
    def accepts_identity(self) -> bool:
        return self.body.accepts_identity

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        body, terms = self.body.backward(rows)
        bias, _ = self.bias.backward(rows)
        return [*body, *bias], terms

    def backward_per_sample(
        self, rows: Rows, shared: set[int]
    ) -> tuple[Sequence[RowsPerSample], Terms] | None:
        """The bias comes third, behind x and y."""
        if 2 not in shared or self.bias.per_sample is None:
            return None
        found: tuple[Sequence[RowsPerSample], Terms] | None
        if len(shared) > 1:
            found = self.body.backward_per_sample(rows, shared - {2})
        else:
            found = self.body.backward(rows)
        if found is None:
            return None
        of_body, terms = found
        return [*of_body, *self.bias.per_sample(rows)], terms

    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        low, up = self.body.forward(lower[:-1], upper[:-1])
        bias_low, bias_up = self.bias.forward(lower[-1:], upper[-1:])
        return low + bias_low, up + bias_up
