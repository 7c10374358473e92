"""Pooling over windows, and over everything."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.errors import UnsupportedOperator
from boundlab.onnx.rows.windows import Windows, windows
from boundlab.onnx.table import Ints, row

MAXIMA: dict[int, Callable[..., Tensor]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
MEANS: dict[int, Callable[..., Tensor]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@row("MaxPool")
def max_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> Tensor:
    """Elements that are added count as -inf. Where torch cannot add them (more on one side than on
    the other), the nearest element is repeated instead: a window without gaps that reaches beyond
    the border holds that element too, so its maximum is the same."""
    pool = _of_rank(MAXIMA, x)
    sizes = x.shape[2:]
    where = windows(sizes, kernel_shape, strides, dilations, pads, auto_pad)
    where = where.filled(sizes, where.counts(sizes, bool(ceil_mode)))
    small = all(2 * a <= k for a, k in zip(where.before, where.kernel, strict=True))
    if where.symmetric and small:
        return pool(x, where.kernel, where.stride, where.before, where.dilation)
    if set(where.dilation) == {1}:
        wide = F.pad(x, where.padding, mode="replicate")
    else:
        wide = F.pad(x, where.padding, value=torch.finfo(x.dtype).min)
    return pool(wide, where.kernel, where.stride, 0, where.dilation)


@row("AveragePool")
def average_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The sum of each window divided by how many of its elements count: those of x, and with
    ``count_include_pad`` the added ones, but not those that only a window that sticks out has."""
    sizes = x.shape[2:]
    where = windows(sizes, kernel_shape, strides, dilations, pads, auto_pad)
    counts = where.counts(sizes, bool(ceil_mode))
    filled = where.filled(sizes, counts)
    plain = not any(filled.padding) and set(where.dilation) == {1}
    if plain:
        return _of_rank(MEANS, x)(x, where.kernel, where.stride)
    wide = F.pad(x, filled.padding)
    counted = wide.new_ones(1, 1, *sizes)
    if count_include_pad:
        counted = F.pad(counted, where.padding, value=1.0)
        rest = [b - a for a, b in zip(where.after, filled.after, strict=True)]
        counted = F.pad(counted, [size for end in reversed(rest) for size in (0, end)])
    else:
        counted = F.pad(counted, filled.padding)
    return _summed(wide, filled) / _summed(counted, filled)


def _summed(x: Tensor, where: Windows) -> Tensor:
    """The sums of windows of a value that is padded already."""
    if set(where.dilation) == {1}:
        return _of_rank(MEANS, x)(x, where.kernel, where.stride) * math.prod(where.kernel)
    channels = x.shape[1]
    ones = x.new_ones(channels, 1, *where.kernel)
    convolve = _of_rank(CONVOLUTIONS, x)
    return convolve(x, ones, None, where.stride, 0, where.dilation, channels)


def _of_rank(functions: dict[int, Callable[..., Tensor]], x: Tensor) -> Callable[..., Tensor]:
    axes = x.dim() - 2
    if axes not in functions:
        raise UnsupportedOperator(f"over {axes} axes: there is that over {sorted(functions)}")
    return functions[axes]


@row("LpPool")
def lp_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    p: int = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    sizes = x.shape[2:]
    where = windows(sizes, kernel_shape, strides, dilations, pads, auto_pad)
    where = where.filled(sizes, where.counts(sizes, bool(ceil_mode)))
    return _summed(F.pad(x.abs() ** p, where.padding), where) ** (1 / p)


@row("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(list(range(2, x.dim())), keepdim=True)


@row("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(list(range(2, x.dim())), keepdim=True)


@row("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return (x.abs() ** p).sum(list(range(2, x.dim())), keepdim=True) ** (1 / p)
