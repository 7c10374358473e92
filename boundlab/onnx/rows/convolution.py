"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.errors import ArgumentError, UnsupportedOperator
from boundlab.onnx.rows.windows import windows
from boundlab.onnx.table import Ints, row

CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}


def _of_rank(functions: dict[int, Callable[..., Tensor]], x: Tensor) -> Callable[..., Tensor]:
    axes = x.dim() - 2
    if axes not in functions:
        raise UnsupportedOperator(f"of {axes} axes: there are those of {sorted(functions)}")
    return functions[axes]


def _kernel(weight: Tensor, declared: Ints | None) -> Ints:
    kernel = tuple(weight.shape[2:])
    if declared is not None and tuple(declared) != kernel:
        raise ArgumentError(f"its kernel_shape {declared} is not that of the weights, {kernel}")
    return kernel


@row("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    convolve = _of_rank(CONVOLUTIONS, x)
    kernel = _kernel(weight, kernel_shape)
    where = windows(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    padding = where.before
    if not where.symmetric:
        x = F.pad(x, where.padding)
        padding = (0,) * len(kernel)
    return convolve(x, weight, bias, where.stride, padding, where.dilation, group)


@row("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The whole transpose, with elements added behind and pads taken away from both sides."""
    convolve = _of_rank(TRANSPOSED, x)
    kernel = _kernel(weight, kernel_shape)
    axes = len(kernel)
    stride, dilation = strides or (1,) * axes, dilations or (1,) * axes
    added = output_padding or (0,) * axes
    whole = [
        (x.shape[2 + axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        for axis in range(axes)
    ]
    sizes = [whole[axis] + added[axis] for axis in range(axes)]
    before, after = _cut_off(x, sizes, stride, pads, auto_pad, output_shape)
    if before == after and not any(a < 0 for a in before):
        return convolve(x, weight, bias, stride, before, added, group, dilation)
    found = convolve(x, weight, None, stride, 0, 0, group, dilation)
    sides = zip(reversed(range(axes)), reversed(before), reversed(after), strict=True)
    found = F.pad(found, [size for axis, a, b in sides for size in (-a, added[axis] - b)])
    if bias is None:
        return found
    return found + bias.reshape(-1, *[1] * axes)


def _cut_off(
    x: Tensor,
    sizes: list[int],
    stride: Ints,
    pads: Ints | None,
    auto_pad: str,
    output_shape: Ints | None,
) -> tuple[list[int], list[int]]:
    """What is taken away before and behind each axis of a result with these sizes; what a larger
    one lacks is added behind."""
    axes = len(sizes)
    if output_shape is None and auto_pad in ("NOTSET", ""):
        both = list(pads or (0,) * (2 * axes))
        return both[:axes], both[axes:]
    if auto_pad == "VALID" and output_shape is None:
        return [0] * axes, [0] * axes
    wanted = list(output_shape or ())[-axes:]
    if not wanted:
        wanted = [x.shape[2 + axis] * stride[axis] for axis in range(axes)]
    total = [size - want for size, want in zip(sizes, wanted, strict=True)]
    before = [max(one, 0) // 2 for one in total]
    if auto_pad != "SAME_UPPER":
        before = [max(one, 0) - half for one, half in zip(total, before, strict=True)]
    return before, [one - half for one, half in zip(total, before, strict=True)]


@row("ConvInteger")
def conv_integer(
    x: Tensor,
    weight: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """In double precision, which holds these sums exactly."""
    values = x.double() - (0 if x_zero_point is None else x_zero_point.double())
    weights = weight.double()
    if w_zero_point is not None:
        zero = w_zero_point.double()
        weights = weights - (zero.reshape(-1, *[1] * (weight.dim() - 1)) if zero.dim() else zero)
    found = conv(
        values,
        weights,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return found.to(torch.int32)


@row("Col2Im")
def col2im(
    x: Tensor,
    image_shape: Ints,
    block_shape: Ints,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    if len(image_shape) != 2:
        raise UnsupportedOperator(f"images of {len(image_shape)} axes; there are those of 2")
    both = pads or (0, 0, 0, 0)
    if both[:2] != both[2:]:
        raise UnsupportedOperator(f"pads {both} that differ on both sides")
    return F.fold(x, image_shape, block_shape, dilations or 1, both[:2], strides or 1)
