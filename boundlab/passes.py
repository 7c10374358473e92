"""Steps that training spends its memory traffic on, with gradients written out.

Autograd makes a pass over the memory for every elementary operation and its gradient. For intervals and ReLUs these
passes cost more than the convolutions between them. Written as one step each they are fewer, and each step is done on
one piece of the batch after the other, small enough that only the first and the last of its passes leave the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

PIECE = 3 << 14
"""Elements of a tensor that are worked on at once: a dozen such tensors fit the cache of a core."""


def in_pieces(body: Callable[..., tuple[Tensor, ...]], dims: int, *inputs: Tensor) -> tuple[Tensor, ...]:
    """``body(*inputs)``, one piece of the samples after the other.

    dims: the dimensions of the values, of which the first has the samples; what comes before it in a tensor are rows. The
    body is elementwise in the samples. On other devices than the CPU, and where gradients are to be had of the body itself,
    the one piece is everything.
    """
    like = max(inputs, key=Tensor.numel)
    samples = like.shape[like.dim() - dims] if dims else 1
    step = max(1, PIECE * samples // max(1, like.numel()))
    if step >= samples or like.device.type != "cpu" or torch.is_grad_enabled():
        return body(*inputs)
    found: list[Tensor] = []
    for first in range(0, samples, step):
        size = min(step, samples - first)
        parts = body(*[tensor.narrow(tensor.dim() - dims, first, size) for tensor in inputs])
        if not found:
            for part in parts:
                at = part.dim() - dims
                found.append(part.new_empty(*part.shape[:at], samples, *part.shape[at + 1 :]))
        for whole, part in zip(found, parts, strict=True):
            whole.narrow(part.dim() - dims, first, size).copy_(part)
    return tuple(found)


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
        def body(c: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
            lower, upper = (c - r).clamp_(min=0), (c + r).clamp_(min=0)
            lower.lerp_(upper, 0.5)
            return lower, upper.sub_(lower)

        return in_pieces(body, centre.dim(), centre, radius)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        def body(c: Tensor, r: Tensor, g: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            """g and k: the gradients of centre and radius; those of the ends are (g - k) / 2 and (g + k) / 2."""
            low = torch.sub(g, k).mul_(0.5)
            up = torch.add(low, k).mul_(c > -r)
            low = low.mul_(c > r)
            return up + low, up - low

        centre, radius = ctx.saved_tensors
        return in_pieces(body, centre.dim(), centre, radius, *gradients)


class _Rectified(torch.autograd.Function):
    """Rows through a ReLU with the adaptive line below: coefficients of its argument, and the constants that they leave.

    With A = max(u, 0), B = min(l, 0), a = A / (A - B) the slope of the chord and s = [a > 1/2] that of the line below,
    which is [u > -l] (both are 1 or 0 where the ReLU is decided), n = min(c, 0):

        coefficients = s c + (a - s) n,    constants = -a B n.

    Gradients: da/dA = (1 - a) / (A - B), da/dB = a / (A - B).
    """

    @staticmethod
    def forward(rows: Tensor, lower: Tensor, upper: Tensor, summed: bool) -> tuple[Tensor, ...]:
        def body(c: Tensor, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
            slope, below, _ = _chord(l, u)
            line, negative = slope.round(), c.clamp(max=0)
            coefficients = torch.mul(c, line).addcmul_(negative, slope - line)
            constants = negative.mul_(below.mul_(slope).neg_())
            return coefficients, _sum_behind(constants) if summed else constants

        return in_pieces(body, lower.dim(), rows, lower, upper)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        def body(c: Tensor, l: Tensor, u: Tensor, g: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """g and k: the gradients of coefficients and constants."""
            slope, below, width = _chord(l, u)
            line, negative = slope.round(), c.clamp(max=0)
            # d c = s g + [c < 0] ((a - s) g - a B k)
            d_rows = torch.mul(g, slope - line).addcmul_(k, below * slope, value=-1).mul_(c < 0).addcmul_(g, line)
            # d a = n (g - B k), d B = d a a / (A - B) - a n k, d A = d a (1 - a) / (A - B), summed over the rows
            d_slope = _sum_rows(torch.addcmul(g, k, below, value=-1).mul_(negative)).div_(width)
            d_below = torch.sub(d_slope, _sum_rows(negative * k)).mul_(slope).mul_(l < 0)
            return d_rows, d_below, d_slope.mul_(1 - slope).mul_(u > 0)

        rows, lower, upper = ctx.saved_tensors
        return *in_pieces(body, lower.dim(), rows, lower, upper, *gradients), None


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
