"""Quantisation: rounding to whole numbers and back."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.errors import UnsupportedOperator
from boundlab.onnx.rows.convolution import conv
from boundlab.onnx.table import Ints, as_dtype, row


def _beside(parameter: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point that broadcasts against x: one, one for each slice, or one for each
    block of elements along an axis."""
    if parameter.dim() == 0 or parameter.numel() == 1:
        return parameter.reshape(())
    if parameter.dim() == 1:
        axis %= x.dim()
        return parameter.reshape([-1 if place == axis else 1 for place in range(x.dim())])
    return parameter.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])


@row("QuantizeLinear")
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    """round(x / scale) + zero point, kept within the range of its type."""
    dtype = torch.uint8
    if zero_point is not None:
        dtype = zero_point.dtype
    elif output_dtype:
        dtype = as_dtype(output_dtype)
    if dtype.is_floating_point:
        raise UnsupportedOperator(f"to {dtype}")
    found = torch.round(x / _beside(scale, x, axis, block_size))
    if zero_point is not None:
        found = found + _beside(zero_point, x, axis, block_size).to(found.dtype)
    range_ = torch.iinfo(dtype)
    return found.clamp(range_.min, range_.max).to(dtype)


@row("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """To bytes by a scale and zero point that fit the value and 0; with both of these."""
    low, high = x.amin().clamp(max=0.0), x.amax().clamp(min=0.0)
    scale = (high - low) / 255
    zero_point = torch.round(-low / scale).clamp(0, 255).to(torch.uint8)
    return quantize_linear(x, scale, zero_point), scale, zero_point


@row("DequantizeLinear")
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    found = x.to(scale.dtype)
    if zero_point is not None:
        found = found - _beside(zero_point, x, axis, block_size).to(scale.dtype)
    return found * _beside(scale, x, axis, block_size)


@row("MatMulInteger")
def matmul_integer(
    a: Tensor,
    b: Tensor,
    a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None,
) -> Tensor:
    """In double precision, which holds these sums exactly."""
    left, right = a.double(), b.double()
    if a_zero_point is not None:
        zero = a_zero_point.double()
        left = left - (zero.unsqueeze(-1) if zero.dim() == 1 and len(zero) > 1 else zero)
    if b_zero_point is not None:
        right = right - b_zero_point.double()
    return torch.matmul(left, right).to(torch.int32)


@row("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
) -> Tensor:
    product = matmul_integer(a, b, a_zero_point, b_zero_point)
    real = product.to(torch.float32) * (a_scale * b_scale).to(torch.float32)
    return quantize_linear(real, y_scale.to(torch.float32), y_zero_point)


@row("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    weight: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    values = x.double() - x_zero_point.double()
    weights = weight.double() - _beside(w_zero_point.double(), weight, 0, 0)
    found = conv(
        values,
        weights,
        None if bias is None else bias.double(),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    scale = x_scale.double() * w_scale.double() / y_scale.double()
    scale = scale.reshape(-1, *[1] * (x.dim() - 2))
    rounded = torch.round(found * scale) + y_zero_point.double()
    range_ = torch.iinfo(y_zero_point.dtype)
    return rounded.clamp(range_.min, range_.max).to(y_zero_point.dtype)
