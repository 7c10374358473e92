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


class _Rectified(torch.autograd.Function):
    """Rows through a ReLU with the adaptive line below: coefficients of its argument, and the constants that they leave.

    With A = max(u, 0), B = min(l, 0), a = A / (A - B) the slope of the chord and s = [u > -l] that of the line below (each
    of them 1 or 0 where the ReLU is decided), n = min(c, 0):

        coefficients = s c + (a - s) n,    constants = -a B n.

    Gradients: da/dA = (1 - a) / (A - B), da/dB = a / (A - B).
    """

    @staticmethod
    def forward(rows: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        slope, below, _ = _chord(lower, upper)
        line = (upper > -lower).to(rows.dtype)
        negative = rows.clamp(max=0)
        constants = negative * (slope * below).neg_()
        return (rows * line).addcmul_(negative, slope - line), constants

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_rows, of_constants = gradients
        rows, lower, upper = ctx.saved_tensors
        slope, below, width = _chord(lower, upper)
        line = (upper > -lower).to(rows.dtype)
        # d rows = s g + [c < 0] ((a - s) g - a B k), for the gradients g of the coefficients and k of the constants
        mixed = torch.mul(of_rows, slope - line).addcmul_(of_constants, slope * below, value=-1)
        d_rows = mixed.mul_(rows < 0).addcmul_(of_rows, line)
        # d a = n (g - B k), d B = d a a / (A - B) - a n k, d A = d a (1 - a) / (A - B), summed over the rows
        negative = rows.clamp(max=0)
        d_slope = torch.addcmul(of_rows, of_constants, below, value=-1).mul_(negative).sum(0).div_(width)
        d_below = (d_slope - (negative * of_constants).sum(0)).mul_(slope)
        d_above = d_slope.mul_(1 - slope)
        return d_rows, d_below.mul_(lower < 0), d_above.mul_(upper > 0)


def _chord(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The slope of the chord of a ReLU, min(l, 0), and the width of what crosses 0."""
    above, below = upper.clamp(min=0), lower.clamp(max=0)
    width = (above - below).clamp_(min=torch.finfo(lower.dtype).tiny)
    return above.div_(width), below, width


def ball(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius of an interval."""
    return _step(_Ball, lower, upper)


def ends(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper end of ``centre +- radius``, of equal shapes."""
    return _step(_Ends, centre, radius)


def rectified(rows: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (rows, *shape) through a ReLU of [lower, upper]: coefficients, and constants of the same shape that are to be summed."""
    return _step(_Rectified, rows, lower, upper)


def _step(function: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Without gradients the function itself, which spares autograd's bookkeeping."""
    found: tuple[Tensor, Tensor] = (function.apply if torch.is_grad_enabled() else function.forward)(*inputs)
    return found
