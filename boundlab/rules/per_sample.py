"""What every sample asks of a weight that all of them share, sample by sample.

The transpose of a layer with respect to its weight sums over the batch. Bounds of single samples
need the terms of that sum: rows (rows, samples, ...) of the result -> coefficients (rows, samples,
*shape of the weight). Nodes here have their samples in dimension 0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.coefficients.outer import Outer
from boundlab.rules.facts import PerSample
from boundlab.rules.registry import Call
from boundlab.rules.settings import each


def weight_of_linear(call: Call, x: Tensor, shape: torch.Size) -> PerSample | None:
    """Of the weight, of that shape, of a linear layer with the constant argument x."""
    if len(shape) != 2 or x.dim() < 2:
        return None
    if x.dim() == 2:
        return lambda rows: Outer(rows, x)
    flat = x.flatten(1, -2)
    return lambda rows: torch.einsum("rsto,sti->rsoi", rows.flatten(2, -2), flat)


def bias_of_linear(rows: Tensor) -> Tensor:
    """Of the bias of a linear layer: the sum over its places."""
    if rows.dim() <= 3:
        return rows
    return rows.flatten(2, -2).sum(2)


def weight_of_convolution(
    dims: int,
) -> Callable[[Call, Tensor, torch.Size], PerSample | None] | None:
    """Of the weight of a convolution over one or two dimensions; None for more."""
    if dims > 2:
        return None
    return lambda call, x, shape: _weight_of_convolution(call, x, shape, dims)


def _weight_of_convolution(call: Call, x: Tensor, shape: torch.Size, dims: int) -> PerSample | None:
    if x.dim() != dims + 2 or isinstance(call["padding"], str):
        return None
    groups = call["groups"]
    kernel: tuple[int, ...] = tuple(shape[2:])
    dilation, stride = tuple(each(call["dilation"], dims)), tuple(each(call["stride"], dims))
    padding = tuple(each(call["padding"], dims))
    # torch unfolds two dimensions: a sequence is an image of height 1
    if dims == 1:
        x, kernel = x.unsqueeze(2), (1, *kernel)
        dilation, stride = (1, *dilation), (1, *stride)
        padding = (0, *padding)
    patches = F.unfold(x, kernel, dilation, padding, stride).unflatten(1, (groups, -1))

    def per_sample(rows: Tensor) -> Tensor:
        split = rows.unflatten(2, (groups, -1)).flatten(4)  # (rows, samples, groups, out, places)
        return torch.einsum("rsgop,sgkp->rsgok", split, patches).reshape(*rows.shape[:2], *shape)

    return per_sample


def bias_of_convolution(rows: Tensor) -> Tensor:
    """Of the bias of a convolution: the sum over its places."""
    return rows.flatten(3).sum(3)
