"""Interval arithmetic through a linear layer, for training with large weights.

Centre and radius of the result are c W^T + b and r |W|^T. Written with abs and autograd, a step makes five tensors of the
size of W (|W|, two gradients, a sign and a product), which for the wide layers behind convolutions costs more than the
products themselves. Here |W| exists a few rows at a time, and there is one gradient:

    dW = g_c^T c + sign(W) * (g_r^T r),    dc = g_c W,    dr = g_r |W|.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK = 1 << 20
"""How many weights are worked on at once: few enough to stay in the cache."""


class _IntervalLinear(torch.autograd.Function):
    @staticmethod
    def forward(centre: Tensor, radius: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        reach = radius.new_empty(len(radius), len(weight))
        for rows in _blocks(weight):
            reach[:, rows] = radius @ weight[rows].abs().T
        return torch.nn.functional.linear(centre, weight, bias), reach

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        centre, radius, weight, bias = inputs
        ctx.save_for_backward(centre, radius, weight)
        ctx.has_bias = bias is not None

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_centre, of_reach = gradients
        centre, radius, weight = ctx.saved_tensors
        wants = ctx.needs_input_grad
        if torch.is_grad_enabled():  # asked to be differentiated again: plain formulas
            d_weight = of_centre.T @ centre + weight.sign() * (of_reach.T @ radius)
            return of_centre @ weight, of_reach @ weight.abs(), d_weight, of_centre.sum(0) if ctx.has_bias else None
        d_centre = of_centre @ weight if wants[0] else None
        d_radius = torch.zeros_like(radius) if wants[1] else None
        d_weight = torch.empty_like(weight) if wants[2] else None
        for rows in _blocks(weight):
            part = weight[rows]
            if d_radius is not None:
                d_radius.addmm_(of_reach[:, rows], part.abs())
            if d_weight is not None:
                block = d_weight[rows]
                torch.mm(of_reach[:, rows].T, radius, out=block)
                block.mul_(part.sign()).addmm_(of_centre[:, rows].T, centre)
        return d_centre, d_radius, d_weight, of_centre.sum(0) if ctx.has_bias and wants[3] else None


def _blocks(weight: Tensor) -> list[slice]:
    step = max(1, BLOCK // max(1, weight.shape[1]))
    return [slice(i, min(i + step, len(weight))) for i in range(0, len(weight), step)]


def interval_linear(centre: Tensor, radius: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Centre and radius of ``linear(x, weight, bias)`` for x of any leading shape within ``centre +- radius``."""
    shape = (*centre.shape[:-1], len(weight))
    flat = lambda tensor: tensor.reshape(-1, centre.shape[-1])
    middle, reach = _IntervalLinear.apply(flat(centre), flat(radius), weight, bias)
    return middle.reshape(shape), reach.reshape(shape)
