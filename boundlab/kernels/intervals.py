"""Centre, radius and ends of intervals, and the least value of rows over a box."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.kernels.autograd import Context, step_of
from boundlab.kernels.reductions import dots


class _Ball(torch.autograd.Function):
    """(lower, upper) -> centre = (lower + upper) / 2, radius = upper - centre."""

    @staticmethod
    def forward(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        centre = torch.lerp(lower, upper, 0.5)
        return centre, upper - centre

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, ...], output: object) -> None:
        pass

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        of_centre, of_radius = gradients
        low = torch.sub(of_centre, of_radius).mul_(0.5)
        return low, low + of_radius


class _Ends(torch.autograd.Function):
    """(centre, radius) -> lower = centre - radius, upper = centre + radius."""

    @staticmethod
    def forward(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        return centre - radius, centre + radius

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, ...], output: object) -> None:
        pass

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        of_lower, of_upper = gradients
        return of_lower + of_upper, of_upper - of_lower


class _Least(torch.autograd.Function):
    """rows (rows, samples, n), centre and radius (samples, n) -> the least <row, x> over the box:
    rows c - |rows| r."""

    @staticmethod
    def forward(rows: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
        rows = rows.detach()  # or the products would be made for autograd
        return dots(rows, centre) - dots(rows.abs(), radius)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, ...], output: object) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, centre, radius = ctx.saved_tensors
        minimiser = torch.addcmul(centre, rows.sign(), radius, value=-1)
        return minimiser.mul_(gradient.unsqueeze(2)), None, None


def ball(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius of an interval."""
    return step_of(_Ball, lower, upper)


def ends(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper end of ``centre +- radius``, of equal shapes."""
    return step_of(_Ends, centre, radius)


def least(rows: Tensor, centre: Tensor, radius: Tensor) -> Tensor:
    """The least value of rows (rows, samples, n) over a box (samples, n) without gradient: (rows,
    samples)."""
    return _Least.apply(rows, centre, radius)
