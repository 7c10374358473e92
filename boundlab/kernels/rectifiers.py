"""ReLUs: balls and rows of coefficients through them."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.kernels.autograd import Context, step_of
from boundlab.kernels.blocks import Placement, alike, by_samples


class _RectifiedBall(torch.autograd.Function):
    """Centre and radius of [max(c - r, 0), max(c + r, 0)]."""

    @staticmethod
    def forward(centre: Tensor, radius: Tensor) -> tuple[Tensor, ...]:
        def step(places: Placement, centre: Tensor, radius: Tensor) -> tuple[Tensor, ...]:
            lower = (centre - radius).clamp_(min=0)
            upper = (centre + radius).clamp_(min=0)
            centre = torch.lerp(lower, upper, 0.5, out=places[0])
            return centre, torch.sub(upper, centre, out=places[1])

        return by_samples(step, 0, (centre, centre), centre, radius)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, ...], output: object) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor, ...]:
        def step(
            places: Placement, centre: Tensor, radius: Tensor, of_centre: Tensor, of_radius: Tensor
        ) -> tuple[Tensor, ...]:
            of_centre, of_radius = alike(of_centre, centre), alike(of_radius, centre)
            # those of the ends are (g - k) / 2 and (g + k) / 2
            low = torch.sub(of_centre, of_radius).mul_(0.5)
            up = _where_positive(low + of_radius, centre + radius)
            low = _where_positive(low, centre - radius)
            return torch.add(up, low, out=places[0]), torch.sub(up, low, out=places[1])

        centre, radius = ctx.saved_tensors
        return by_samples(step, 0, (centre, centre), centre, radius, *gradients)


class _Rectified(torch.autograd.Function):
    """Rows through a ReLU with the adaptive line below: coefficients of its argument, and the
    constants that they leave.

    With A = max(u, 0), B = min(l, 0), a = A / (A - B) the slope of the chord and s = [a > 1/2] that
    of the line below, which is [u > -l] (both are 1 or 0 where the ReLU is decided), n = min(c, 0):

        coefficients = s max(c, 0) + a n,    constants = -B a n.

    Gradients: da/dA = (1 - a) / (A - B), da/dB = a / (A - B). The interval is given by its ends or,
    if ``ball``, by centre and radius, whose ends are then never in memory as a whole.
    """

    @staticmethod
    def forward(
        rows: Tensor, first: Tensor, second: Tensor, summed: bool, ball: bool
    ) -> tuple[Tensor, ...]:
        def step(places: Placement, rows: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
            slope, below, _ = _chord(*_ends_of(given, ball))
            negative = rows.clamp(max=0).mul_(slope)
            coefficients = torch.addcmul(negative, rows.clamp(min=0), slope.round_(), out=places[0])
            if summed:
                return coefficients, torch.neg(_sum_behind(negative.mul_(below)), out=places[1])
            return coefficients, torch.mul(negative, below.neg_(), out=places[1])

        constants = rows
        if summed and rows.dim() > 2:
            constants = rows.new_empty(*rows.shape[:2], *[1] * (rows.dim() - 2))
        given = first.unsqueeze(0), second.unsqueeze(0)
        return by_samples(step, 1, (rows, constants), rows, *given)

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Tensor, Tensor, Tensor, bool, bool], output: object
    ) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.ball = inputs[4]

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        def step(
            places: Placement, rows: Tensor, first: Tensor, second: Tensor, g: Tensor, k: Tensor
        ) -> tuple[Tensor, ...]:
            """g: of the coefficients, k: of the constants."""
            lower, upper = _ends_of((first, second), ctx.ball)
            slope, below, width = _chord(lower, upper)
            g = alike(g, rows)
            # h = [c <= 0] (g - B k), d c = [c > 0] s g + a h
            h = _where_not_positive(torch.addcmul(g, k, below, value=-1), rows)
            d_rows = _where_positive(g, rows).mul_(slope.round())
            d_rows = torch.addcmul(d_rows, h, slope, out=places[0])
            # d a = n h, d B = a (d a / (A - B) - n k), d A = (1 - a) d a / (A - B), summed over the
            # rows
            d_slope = _sum_rows(h * rows).div_(width)
            d_below = torch.sub(d_slope, _sum_rows(rows.clamp(max=0).mul_(k))).mul_(slope)
            d_above = torch.addcmul(d_slope, slope, d_slope, value=-1)
            if not ctx.ball:
                d_lower = _where_negative(d_below, lower, places[1])
                d_upper = _where_positive(d_above, upper, places[2])
                return d_rows, d_lower, d_upper
            d_lower = _where_negative(d_below, lower)
            d_upper = _where_positive(d_above, upper)
            d_centre = torch.add(d_upper, d_lower, out=places[1])
            d_radius = torch.sub(d_upper, d_lower, out=places[2])
            return d_rows, d_centre, d_radius

        rows, *given = ctx.saved_tensors
        first, second = (part.unsqueeze(0) for part in given)
        d_rows, d_first, d_second = by_samples(
            step, 1, (rows, first, second), rows, first, second, *gradients
        )
        return d_rows, d_first.squeeze(0), d_second.squeeze(0), None, None


class _Sloped(torch.autograd.Function):
    """Rows through a ReLU whose line below has a slope f that can be chosen: c+ f + c- a, and the
    constants c- b that they leave, with a and b slope and intercept of the chord, which are not
    differentiated by."""

    @staticmethod
    def forward(rows: Tensor, free: Tensor, slope: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        negative = rows.clamp(max=0)
        return rows.clamp(min=0).mul_(free).addcmul_(negative, slope), negative.mul_(bias)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, ...], output: object) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, free, slope, bias = ctx.saved_tensors
        g, k = gradients
        d_rows = d_free = None
        if ctx.needs_input_grad[0]:
            d_rows = _where_positive(g * free, rows)
            d_rows.add_(_where_not_positive((g * slope).addcmul_(k, bias), rows))
        if ctx.needs_input_grad[1]:
            d_free = rows.clamp(min=0).mul_(g).sum_to_size(free.shape)
        return d_rows, d_free, None, None


def _ends_of(given: tuple[Tensor, ...], ball: bool) -> tuple[Tensor, Tensor]:
    """Lower and upper end of an interval that is given by them, or by centre and radius."""
    first, second = given
    if ball:
        return first - second, first + second
    return first, second


def _where_positive(values: Tensor, of: Tensor, place: Tensor | None = None) -> Tensor:
    """The values where another tensor is positive, 0 elsewhere: one pass, which comparing and
    multiplying or choosing is not."""
    aten = torch.ops.aten.threshold_backward
    if place is None:
        return aten.default(values, of, 0)
    return aten.grad_input(values, of, 0, grad_input=place)


def _where_negative(values: Tensor, of: Tensor, place: Tensor | None = None) -> Tensor:
    """The values where another tensor is negative, 0 elsewhere."""
    aten = torch.ops.aten.hardtanh_backward
    if place is None:
        return aten.default(values, of, -torch.inf, 0)
    return aten.grad_input(values, of, -torch.inf, 0, grad_input=place)


def _where_not_positive(values: Tensor, of: Tensor) -> Tensor:
    """Zeros included: a coefficient that happens to be 0 has a gradient."""
    smallest = SMALLEST.get(values.dtype, torch.finfo(values.dtype).tiny)
    return torch.ops.aten.hardtanh_backward.default(values, of, -torch.inf, smallest)


SMALLEST = {torch.float32: 2.0**-149, torch.float64: 2.0**-1074}
"""The least positive number; of other kinds the least normal one will do."""


def _sum_rows(rows: Tensor) -> Tensor:
    """(rows, *shape) -> (1, *shape)."""
    if len(rows) == 1:
        return rows
    return rows.sum(0, keepdim=True)


def _sum_behind(rows: Tensor) -> Tensor:
    """(rows, samples, *rest) -> (rows, samples, 1, ...)."""
    if rows.dim() <= 2:
        return rows
    return rows.sum(tuple(range(2, rows.dim())), keepdim=True)


def _chord(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The slope of the chord of a ReLU, min(l, 0), and the width of what crosses 0.

    Where the width is beyond all numbers the slope is taken for a smaller one, but not above 1: a
    line through (l, 0) that is steeper than the chord lies above it.
    """
    kind = torch.finfo(lower.dtype)
    above, below = upper.clamp(min=0, max=kind.max), lower.clamp(max=0)
    width = (above - below).clamp_(min=kind.tiny, max=kind.max)
    return above.div_(width), below, width


def rectified_ball(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius behind a ReLU, of ``centre +- radius`` of equal shapes."""
    return step_of(_RectifiedBall, centre, radius)


def rectified(
    rows: Tensor, first: Tensor, second: Tensor, summed: bool = False, ball: bool = False
) -> tuple[Tensor, Tensor]:
    """Rows (rows, *shape) through a ReLU of [first, second], or of first +- second for a ``ball``:
    coefficients, and constants of the same shape that are to be summed; or the sums (rows, samples)
    if the first dimension has the samples."""
    coefficients, constants = step_of(_Rectified, rows, first, second, summed, ball)
    if summed:
        return coefficients, constants.flatten(1)
    return coefficients, constants


def sloped(rows: Tensor, free: Tensor, slope: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (rows, *shape) through a ReLU: coefficients, and constants of the same shape that are to
    be summed. free: the slope of the line below. slope, bias: those of the chord, without
    gradient."""
    return step_of(_Sloped, rows, free, slope, bias)
