"""Steps that training spends its memory traffic on, with gradients written out.

Autograd makes a pass over the memory for every elementary operation and its gradient. For intervals
and ReLUs these passes cost as much as the convolutions between them; written as one step each they
take a third of them. Where caches are small a step is made for a few samples at a time: what it
makes on the way then stays in the cache, in memory that is used again and again instead of being
asked of the system.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from boundlab.kernels.reductions import dots

Placement = tuple[Tensor | None, ...]
"""Where a step is to write its results; None: it makes them."""
BLOCK = {"cpu": 1 << 17}
"""How many numbers of a tensor a step works on at once, where caches are small; elsewhere on
all."""


def _by_samples(
    step: Callable[..., tuple[Tensor, ...]], dim: int, shapes: tuple[Tensor, ...], *tensors: Tensor
) -> tuple[Tensor, ...]:
    """``step(places, *tensors)``, made for a few samples at a time, which writes its results to the
    places: tensors like ``shapes``, or None where it is to make them itself. All have the samples,
    or what else there is in its place, in the dimension ``dim``."""
    largest = max(tensors, key=Tensor.numel)
    block, samples = (
        BLOCK.get(largest.device.type, largest.numel()),
        largest.shape[dim] if largest.dim() > dim else 1,
    )
    if largest.numel() <= 4 * block or samples == 1 or torch.is_grad_enabled():
        return step((None,) * len(shapes), *tensors)
    size = max(1, block * samples // largest.numel())
    whole = tuple(torch.empty_like(shape) for shape in shapes)
    for places, *parts in zip(
        _parts(size, dim, whole), *(tensor.split(size, dim) for tensor in tensors), strict=True
    ):
        step(places, *parts)
    return whole


def _parts(size: int, dim: int, tensors: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
    return list(zip(*(tensor.split(size, dim) for tensor in tensors), strict=True))


def _alike(values: Tensor, like: Tensor) -> Tensor:
    """The values with their dimensions in the order in memory that those of another tensor of the
    same shape have: working on both together takes several times as long else."""
    return (
        values
        if values.stride() == like.stride()
        else torch.empty_like(like, dtype=values.dtype).copy_(values)
    )


class _Ball(torch.autograd.Function):
    """(lower, upper) -> centre = (lower + upper) / 2, radius = upper - centre."""

    @staticmethod
    def forward(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        centre = torch.lerp(lower, upper, 0.5)
        return centre, upper - centre

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        of_centre, of_radius = gradients
        low = torch.sub(of_centre, of_radius).mul_(0.5)
        return low, low + of_radius


class _Ends(torch.autograd.Function):
    """(centre, radius) -> lower = centre - radius, upper = centre + radius."""

    @staticmethod
    def forward(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        return centre - radius, centre + radius

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        of_lower, of_upper = gradients
        return of_lower + of_upper, of_upper - of_lower


class _RectifiedBall(torch.autograd.Function):
    """Centre and radius of [max(c - r, 0), max(c + r, 0)]."""

    @staticmethod
    def forward(centre: Tensor, radius: Tensor) -> tuple[Tensor, ...]:
        def step(places: Placement, centre: Tensor, radius: Tensor) -> tuple[Tensor, ...]:
            lower, upper = (centre - radius).clamp_(min=0), (centre + radius).clamp_(min=0)
            centre = torch.lerp(lower, upper, 0.5, out=places[0])
            return centre, torch.sub(upper, centre, out=places[1])

        return _by_samples(step, 0, (centre, centre), centre, radius)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        def step(
            places: Placement, centre: Tensor, radius: Tensor, of_centre: Tensor, of_radius: Tensor
        ) -> tuple[Tensor, ...]:
            of_centre, of_radius = _alike(of_centre, centre), _alike(of_radius, centre)
            # those of the ends are (g - k) / 2 and (g + k) / 2
            low = torch.sub(of_centre, of_radius).mul_(0.5)
            up = _where_positive(low + of_radius, centre + radius)
            low = _where_positive(low, centre - radius)
            return torch.add(up, low, out=places[0]), torch.sub(up, low, out=places[1])

        centre, radius = ctx.saved_tensors
        return _by_samples(step, 0, (centre, centre), centre, radius, *gradients)


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

        constants = (
            rows.new_empty(*rows.shape[:2], *[1] * (rows.dim() - 2))
            if summed and rows.dim() > 2
            else rows
        )
        return _by_samples(
            step, 1, (rows, constants), rows, first.unsqueeze(0), second.unsqueeze(0)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.ball = inputs[4]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        def step(
            places: Placement, rows: Tensor, first: Tensor, second: Tensor, g: Tensor, k: Tensor
        ) -> tuple[Tensor, ...]:
            """g: of the coefficients, k: of the constants."""
            lower, upper = _ends_of((first, second), ctx.ball)
            slope, below, width = _chord(lower, upper)
            g = _alike(g, rows)
            # h = [c <= 0] (g - B k), d c = [c > 0] s g + a h
            h = _where_not_positive(torch.addcmul(g, k, below, value=-1), rows)
            d_rows = torch.addcmul(
                _where_positive(g, rows).mul_(slope.round()), h, slope, out=places[0]
            )
            # d a = n h, d B = a (d a / (A - B) - n k), d A = (1 - a) d a / (A - B), summed over the
            # rows
            d_slope = _sum_rows(h * rows).div_(width)
            d_below = torch.sub(d_slope, _sum_rows(rows.clamp(max=0).mul_(k))).mul_(slope)
            d_above = torch.addcmul(d_slope, slope, d_slope, value=-1)
            if not ctx.ball:
                return (
                    d_rows,
                    _where_negative(d_below, lower, places[1]),
                    _where_positive(d_above, upper, places[2]),
                )
            d_lower, d_upper = _where_negative(d_below, lower), _where_positive(d_above, upper)
            return (
                d_rows,
                torch.add(d_upper, d_lower, out=places[1]),
                torch.sub(d_upper, d_lower, out=places[2]),
            )

        rows, *given = ctx.saved_tensors
        first, second = (part.unsqueeze(0) for part in given)
        d_rows, d_first, d_second = _by_samples(
            step, 1, (rows, first, second), rows, first, second, *gradients
        )
        return d_rows, d_first.squeeze(0), d_second.squeeze(0), None, None


def _ends_of(given: tuple[Tensor, ...], ball: bool) -> tuple[Tensor, Tensor]:
    first, second = given
    return (first - second, first + second) if ball else (first, second)


def _where_positive(values: Tensor, of: Tensor, place: Tensor | None = None) -> Tensor:
    """The values where another tensor is positive, 0 elsewhere: one pass, which comparing and
    multiplying or choosing is not."""
    aten = torch.ops.aten.threshold_backward
    found: Tensor = (
        aten.default(values, of, 0)
        if place is None
        else aten.grad_input(values, of, 0, grad_input=place)
    )
    return found


def _where_negative(values: Tensor, of: Tensor, place: Tensor | None = None) -> Tensor:
    aten, ends = torch.ops.aten.hardtanh_backward, (-torch.inf, 0)
    found: Tensor = (
        aten.default(values, of, *ends)
        if place is None
        else aten.grad_input(values, of, *ends, grad_input=place)
    )
    return found


def _where_not_positive(values: Tensor, of: Tensor) -> Tensor:
    """Zeros included: a coefficient that happens to be 0 has a gradient."""
    found: Tensor = torch.ops.aten.hardtanh_backward.default(
        values, of, -torch.inf, SMALLEST.get(values.dtype, torch.finfo(values.dtype).tiny)
    )
    return found


SMALLEST = {torch.float32: 2.0**-149, torch.float64: 2.0**-1074}
"""The least positive number; of other kinds the least normal one will do."""


def _sum_rows(rows: Tensor) -> Tensor:
    return rows if len(rows) == 1 else rows.sum(0, keepdim=True)


def _sum_behind(rows: Tensor) -> Tensor:
    """(rows, samples, *rest) -> (rows, samples, 1, ...)."""
    return rows.sum(tuple(range(2, rows.dim())), keepdim=True) if rows.dim() > 2 else rows


def _chord(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The slope of the chord of a ReLU, min(l, 0), and the width of what crosses 0.

    Where the width is beyond all numbers the slope is taken for a smaller one, but not above 1: a
    line through (l, 0) that is steeper than the chord lies above it.
    """
    kind = torch.finfo(lower.dtype)
    above, below = upper.clamp(min=0, max=kind.max), lower.clamp(max=0)
    width = (above - below).clamp_(min=kind.tiny, max=kind.max)
    return above.div_(width), below, width


class _Sloped(torch.autograd.Function):
    """Rows through a ReLU whose line below has a slope f that can be chosen: c+ f + c- a, and the
    constants c- b that they leave, with a and b slope and intercept of the chord, which are not
    differentiated by."""

    @staticmethod
    def forward(rows: Tensor, free: Tensor, slope: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        negative = rows.clamp(max=0)
        return rows.clamp(min=0).mul_(free).addcmul_(negative, slope), negative.mul_(bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (rows, free, slope, bias), (g, k) = ctx.saved_tensors, gradients
        d_rows = d_free = None
        if ctx.needs_input_grad[0]:
            d_rows = _where_positive(g * free, rows).add_(
                _where_not_positive((g * slope).addcmul_(k, bias), rows)
            )
        if ctx.needs_input_grad[1]:
            d_free = rows.clamp(min=0).mul_(g).sum_to_size(free.shape)
        return d_rows, d_free, None, None


class _Least(torch.autograd.Function):
    """rows (rows, samples, n), centre and radius (samples, n) -> the least <row, x> over the box:
    rows c - |rows| r."""

    @staticmethod
    def forward(rows: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
        rows = rows.detach()  # or the products would be made for autograd
        return dots(rows, centre) - dots(rows.abs(), radius)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, centre, radius = ctx.saved_tensors
        return (
            torch.addcmul(centre, rows.sign(), radius, value=-1).mul_(gradient.unsqueeze(2)),
            None,
            None,
        )


class _Moments(torch.autograd.Function):
    """Mean and variance per channel: the gradient is one pass, x 2 dv / n + (dm - 2 m dv) / n."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        dims = [0, *range(2, x.dim())]
        mean = x.mean(dims, keepdim=True)
        return torch.stack([mean.flatten(), (x - mean).square_().mean(dims)])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, found = ctx.saved_tensors
        of_mean, of_variance = gradients[0] * (found.shape[1] / x.numel())
        channels = lambda value: value.reshape(-1, *[1] * (x.dim() - 2))
        return torch.addcmul(
            channels(of_mean - 2 * found[0] * of_variance), x, channels(2 * of_variance)
        )


def ball(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius of an interval."""
    return _step(_Ball, lower, upper)


def ends(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper end of ``centre +- radius``, of equal shapes."""
    return _step(_Ends, centre, radius)


def rectified_ball(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius behind a ReLU, of ``centre +- radius`` of equal shapes."""
    return _step(_RectifiedBall, centre, radius)


def rectified(
    rows: Tensor, first: Tensor, second: Tensor, summed: bool = False, ball: bool = False
) -> tuple[Tensor, Tensor]:
    """Rows (rows, *shape) through a ReLU of [first, second], or of first +- second for a ``ball``:
    coefficients, and constants of the same shape that are to be summed; or the sums (rows, samples)
    if the first dimension has the samples."""
    coefficients, constants = _step(_Rectified, rows, first, second, summed, ball)
    return coefficients, constants.flatten(1) if summed else constants


def sloped(rows: Tensor, free: Tensor, slope: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (rows, *shape) through a ReLU: coefficients, and constants of the same shape that are to
    be summed. free: the slope of the line below. slope, bias: those of the chord, without
    gradient."""
    return _step(_Sloped, rows, free, slope, bias)


def least(rows: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
    """The least value of rows (rows, samples, n) over a box (samples, n) without gradient: (rows,
    samples)."""
    return _Least.apply(rows, centre, radius)  # type: ignore[no-any-return]


def moments(x: Tensor) -> Tensor:
    """(samples, channels, *rest) -> (2, channels): mean and variance of every channel, of all
    samples and places."""
    return _Moments.apply(x)  # type: ignore[no-any-return]


def _step(function: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
    """Without gradients the function itself, which spares autograd's bookkeeping."""
    found: tuple[Tensor, Tensor] = (
        function.apply if torch.is_grad_enabled() else function.forward
    )(*inputs)
    return found


class _AbsoluteDots(torch.autograd.Function):
    """(rows (k, n), others (s, n), weights (s, n)) -> sum of |row - other| * weight: (k, s).

    Made and made again in blocks that stay in the cache: the differences themselves, (k, s, n), are
    never there as a whole.
    """

    @staticmethod
    def forward(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
        total = rows.new_zeros(len(rows), len(others))
        for part in _blocks(rows, others):
            total += (
                (rows[:, None, part] - others[None, :, part]).abs_().mul_(weights[:, part]).sum(2)
            )
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, others, weights = ctx.saved_tensors
        of_rows, of_others, of_weights = (
            torch.empty_like(rows),
            torch.empty_like(others),
            torch.empty_like(weights),
        )
        for part in _blocks(rows, others):
            gaps = rows[:, None, part] - others[None, :, part]
            signs = gaps.sign().mul_(gradient.unsqueeze(2))
            of_weights[:, part] = gaps.mul_(signs).sum(0)
            signs.mul_(weights[:, part])
            of_others[:, part] = -signs.sum(0)
            of_rows[:, part] = signs.sum(1)
        return of_rows, of_others, of_weights


def _blocks(rows: Tensor, others: Tensor) -> list[slice]:
    size = max(1, 2 * BLOCK.get(rows.device.type, 1 << 25) // max(1, len(rows) * len(others)))
    return [slice(first, first + size) for first in range(0, rows.shape[1], size)]


def absolute_dots(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """sum over n of |rows_kn - others_sn| * weights_sn: (k, n), (s, n), (s, n) -> (k, s)."""
    found: Tensor = _AbsoluteDots.apply(rows, others, weights)  # type: ignore[no-untyped-call]
    return found
