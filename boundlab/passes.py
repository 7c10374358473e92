"""Steps that training spends its memory traffic on, with gradients written out.

Autograd makes a pass over the memory for every elementary operation and its gradient. For intervals and ReLUs these
passes cost as much as the convolutions between them; written as one step each they take a third of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
        lower, upper = (centre - radius).clamp_(min=0), (centre + radius).clamp_(min=0)
        lower.lerp_(upper, 0.5)
        return lower, upper.sub_(lower)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        (centre, radius), (of_centre, of_radius) = ctx.saved_tensors, gradients
        low = torch.sub(of_centre, of_radius).mul_(0.5)  # those of the ends are (g - k) / 2 and (g + k) / 2
        up = torch.add(low, of_radius).mul_(centre + radius > 0)
        low = low.mul_(centre > radius)
        return up + low, up - low


class _Rectified(torch.autograd.Function):
    """Rows through a ReLU with the adaptive line below: coefficients of its argument, and the constants that they leave.

    With A = max(u, 0), B = min(l, 0), a = A / (A - B) the slope of the chord and s = [a > 1/2] that of the line below,
    which is [u > -l] (both are 1 or 0 where the ReLU is decided), n = min(c, 0):

        coefficients = s c + (a - s) n,    constants = -a B n.

    Gradients: da/dA = (1 - a) / (A - B), da/dB = a / (A - B).
    """

    @staticmethod
    def forward(rows: Tensor, lower: Tensor, upper: Tensor, summed: bool) -> tuple[Tensor, ...]:
        slope, below, _ = _chord(lower, upper)
        line, negative = slope.round(), rows.clamp(max=0)
        coefficients = torch.mul(rows, line).addcmul_(negative, slope - line)
        constants = negative.mul_(below.mul_(slope).neg_())
        return coefficients, _sum_behind(constants) if summed else constants

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (rows, lower, upper), (g, k) = ctx.saved_tensors, gradients  # g of the coefficients, k of the constants
        slope, below, width = _chord(lower, upper)
        line, negative = slope.round(), rows.clamp(max=0)
        # d c = s g + [c < 0] ((a - s) g - a B k)
        d_rows = torch.mul(g, slope - line).addcmul_(k, below * slope, value=-1).mul_(rows < 0).addcmul_(g, line)
        # d a = n (g - B k), d B = d a a / (A - B) - a n k, d A = d a (1 - a) / (A - B), summed over the rows
        d_slope = _sum_rows(torch.addcmul(g, k, below, value=-1).mul_(negative)).div_(width)
        d_below = torch.sub(d_slope, _sum_rows(negative * k)).mul_(slope).mul_(lower < 0)
        return d_rows, d_below, d_slope.mul_(1 - slope).mul_(upper > 0), None


def _sum_rows(rows: Tensor) -> Tensor:
    return rows.squeeze(0) if len(rows) == 1 else rows.sum(0)


def _sum_behind(rows: Tensor) -> Tensor:
    """(rows, samples, *rest) -> (rows, samples, 1, ...)."""
    return rows.sum(tuple(range(2, rows.dim())), keepdim=True) if rows.dim() > 2 else rows


def _chord(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The slope of the chord of a ReLU, min(l, 0), and the width of what crosses 0."""
    above, below = upper.clamp(min=0), lower.clamp(max=0)
    width = (above - below).clamp_(min=torch.finfo(lower.dtype).tiny)
    return above.div_(width), below, width


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
        return torch.addcmul(channels(of_mean - 2 * found[0] * of_variance), x, channels(2 * of_variance))


def ball(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius of an interval."""
    return _step(_Ball, lower, upper)


def ends(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper end of ``centre +- radius``, of equal shapes."""
    return _step(_Ends, centre, radius)


def rectified_ball(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius behind a ReLU, of ``centre +- radius`` of equal shapes."""
    return _step(_RectifiedBall, centre, radius)


def rectified(rows: Tensor, lower: Tensor, upper: Tensor, summed: bool = False) -> tuple[Tensor, Tensor]:
    """Rows (rows, *shape) through a ReLU of [lower, upper]: coefficients, and constants of the same shape that are to be
    summed; or the sums (rows, samples) if the first dimension has the samples."""
    coefficients, constants = _step(_Rectified, rows, lower, upper, summed)
    return coefficients, constants.flatten(1) if summed else constants


def moments(x: Tensor) -> Tensor:
    """(samples, channels, *rest) -> (2, channels): mean and variance of every channel, of all samples and places."""
    return _Moments.apply(x)  # type: ignore[no-any-return]


def _step(function: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
    """Without gradients the function itself, which spares autograd's bookkeeping."""
    found: tuple[Tensor, Tensor] = (function.apply if torch.is_grad_enabled() else function.forward)(*inputs)
    return found


BLOCK = {"cpu": 1 << 18}
"""How many differences are made at once where caches are small; elsewhere 1 << 26."""


class _AbsoluteDots(torch.autograd.Function):
    """(rows (k, n), others (s, n), weights (s, n)) -> sum of |row - other| * weight: (k, s).

    Made and made again in blocks that stay in the cache: the differences themselves, (k, s, n), are never there as a whole.
    """

    @staticmethod
    def forward(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
        total = rows.new_zeros(len(rows), len(others))
        for part in _blocks(rows, others):
            gaps = (rows[:, None, part] - others[None, :, part]).abs_()
            total += torch.einsum("ksn,sn->ks", gaps, weights[:, part])
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, others, weights = ctx.saved_tensors
        of_rows, of_others, of_weights = torch.empty_like(rows), torch.empty_like(others), torch.empty_like(weights)
        for part in _blocks(rows, others):
            gaps = rows[:, None, part] - others[None, :, part]
            of_weights[:, part] = torch.einsum("ks,ksn->sn", gradient, gaps.abs())
            gaps.sign_().mul_(gradient.unsqueeze(2))
            of_others[:, part] = -gaps.sum(0) * weights[:, part]
            of_rows[:, part] = torch.einsum("ksn,sn->kn", gaps, weights[:, part])
        return of_rows, of_others, of_weights


def _blocks(rows: Tensor, others: Tensor) -> list[slice]:
    size = max(1, BLOCK.get(rows.device.type, 1 << 26) // max(1, len(rows) * len(others)))
    return [slice(first, first + size) for first in range(0, rows.shape[1], size)]


def absolute_dots(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """sum over n of |rows_kn - others_sn| * weights_sn: (k, n), (s, n), (s, n) -> (k, s)."""
    found: Tensor = _AbsoluteDots.apply(rows, others, weights)  # type: ignore[no-untyped-call]
    return found
