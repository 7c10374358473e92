"""Fourier transforms of complex numbers: products with matrices of cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from boundlab.capture.complex_rows import row
from boundlab.capture.complex_writer import Pair, Part, Writer
from boundlab.capture.fourier import half_weights, scale, turns
from boundlab.errors import CaptureError
from boundlab.rules.registry import aten


@row(aten._fft_c2c)
def _c2c(writer: Writer, node: fx.Node) -> Pair:
    args: Any = node.args
    z, dims, mode, forward = args
    pair = writer.pair(z)
    sizes = _sizes(z, dims)
    for dim, size in zip(dims, sizes, strict=True):
        pair = _transform(writer, pair, dim, size, size, forward=bool(forward))
    return _scaled(writer, pair, scale(mode, sizes))


@row(aten._fft_r2c)
def _r2c(writer: Writer, node: fx.Node) -> Pair:
    """The last of the dimensions first, of which half of the frequencies may be enough."""
    args: Any = node.args
    x, dims, mode, onesided = args
    sizes = _sizes(x, dims)
    frequencies = sizes[-1]
    if onesided:
        frequencies = sizes[-1] // 2 + 1
    pair = _transform(writer, Pair(x), dims[-1], sizes[-1], frequencies, forward=True)
    for dim, size in zip(dims[:-1], sizes[:-1], strict=True):
        pair = _transform(writer, pair, dim, size, size, forward=True)
    return _scaled(writer, pair, scale(mode, sizes))


@row(aten._fft_c2r)
def _c2r(writer: Writer, node: fx.Node) -> fx.Node:
    """The last of the dimensions last, from half of the frequencies:
    x_t = sum_k w_k (Re z_k cos(2 pi t k / n) - Im z_k sin(2 pi t k / n))."""
    args: Any = node.args
    z, dims, mode, size = args
    pair = writer.pair(z)
    sizes = [*_sizes(z, dims[:-1]), int(size)]
    for dim, length in zip(dims[:-1], sizes, strict=False):
        pair = _transform(writer, pair, dim, length, length, forward=False)
    cosines, sines = turns(size, size // 2 + 1, size)
    weights = half_weights(size) * scale(mode, sizes)
    real = _along(writer, pair.real, dims[-1], cosines * weights)
    imag = _along(writer, pair.imag, dims[-1], sines * weights)
    found = writer.total((1, real), (-1, imag))
    assert isinstance(found, fx.Node)
    return found


def _sizes(z: Any, dims: Sequence[int]) -> list[int]:
    sizes = [z.meta["val"].shape[dim] for dim in dims]
    if not all(isinstance(size, int) for size in sizes):
        raise CaptureError("a Fourier transform runs along a dimension whose size is free")
    return sizes


def _transform(
    writer: Writer, pair: Pair, dim: int, size: int, frequencies: int, forward: bool
) -> Pair:
    """z_k = sum_t x_t exp(-+ 2 pi i t k / n): with c and s the sums of x_t times cosine and sine,
    forward (Re c + Im s) + i (Im c - Re s), backward with the other sign of s."""
    cosines, sines = turns(frequencies, size, size)
    c = [_along(writer, part, dim, cosines) for part in pair.parts]
    s = [_along(writer, part, dim, sines) for part in pair.parts]
    sign = 1 if forward else -1
    real = writer.total((1, c[0]), (sign, s[1]))
    imag = writer.total((1, c[1]), (-sign, s[0]))
    return Pair(real, imag)


def _along(writer: Writer, part: Part, dim: int, matrix: torch.Tensor) -> Part:
    """A matrix, (new, old), times the vectors of a part along a dimension."""
    if part is None:
        return None
    assert isinstance(part, fx.Node)
    weight = writer.constant(matrix, part)
    last = part.meta["val"].dim() - 1
    if dim in (-1, last):
        return writer.call(aten.linear.default, part, weight)
    turned = writer.call(aten.transpose.int, part, dim, last)
    moved = writer.call(aten.linear.default, turned, weight)
    return writer.call(aten.transpose.int, moved, dim, last)


def _scaled(writer: Writer, pair: Pair, factor: float) -> Pair:
    if math.isclose(factor, 1):
        return pair
    return writer.times(pair, Pair(factor))
