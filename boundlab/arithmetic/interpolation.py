"""Rows of operators that sample images between pixels: resizing, and warps by a constant grid.

A kernel computes the place t of each element of the result along each dimension by a handful of
operations whose terms are at most R = (n + 1) max(1, |g|), with n pixels and the coordinate g of a
grid: t is off by at most 7 u R. The result is continuous in t: a pixel that is left out has weight
0 there. Let m be the largest pixel times what the magnitudes of the weights may add up to, which is
1 for linear weights and 11/8 along each dimension for cubic ones (at t = 1/2). The derivatives of
the weights along a dimension add up to at most 2 and 3. So the result moves by at most

    5/2 * 7 u R m

for each dimension, and by 5/2 d m for a place that is off by d for other reasons. Weights of 4 taps
are polynomials of t whose terms add up to at most 36, which Horner's scheme evaluates with an error
of 216 u; products and sums are rounded as usual.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import Format
from boundlab.arithmetic.rows import Row, Sums, elements
from boundlab.errors import UnsupportedOperator
from boundlab.graph.graph import Operator
from boundlab.rules.registry import Call, aten
from boundlab.rules.warps import BICUBIC

NEAREST = 1
"""torch's number for the mode of grid_sampler."""
OF_MOVES = 2.5
OF_PLACE = 18
"""How far the result moves with a place; roundings of a place, for each of R: both times m."""
FARTHEST = 2.0**60
"""The coordinate that stands for those that are farther away, or no numbers."""


@dataclass(frozen=True)
class Weights:
    """most: what the magnitudes of weights along a dimension add up to, rounded up; roundings: of
    weights, products and sums, relative to m."""

    most: float
    roundings: int


LINEAR, CUBIC = Weights(1.0, 64), Weights(1.5, 1024)


def _roundings(weights: Weights, sizes: Sequence[int], reach: float = 1.0) -> int:
    """How many roundings a term passes, relative to m, in images of some size."""
    return math.ceil(OF_PLACE * sum(size + 1 for size in sizes) * reach) + weights.roundings


def _largest_pixel(op: Operator, factor: float) -> Callable[..., Tensor]:
    """m for every element of the result: the operator on images whose pixels are all the largest
    one of their channel."""

    def absolute(x: Tensor, *args: object, **kwargs: object) -> Tensor:
        dims = tuple(range(2, x.dim()))
        largest = x.abs().amax(dims, keepdim=True).expand_as(x).contiguous()
        found: Tensor = op(largest, *args, **kwargs)
        return factor * found

    return absolute


def resized(op: Operator, weights: Weights = LINEAR) -> Sums:
    """The row of an operator that resizes images."""

    def count(call: Call) -> int:
        return _roundings(weights, elements(call, 0)[2:])

    return Sums(count, _largest_pixel(op, weights.most**2))


def _of_grid(call: Call) -> Weights:
    if call["interpolation_mode"] == BICUBIC:
        return CUBIC
    return LINEAR


def _of_warp(call: Call) -> int:
    grid = call["grid"].abs().clamp(1.0, FARTHEST).nan_to_num(FARTHEST)
    reach = float(grid.amax()) if grid.numel() else 1.0
    return _roundings(_of_grid(call), elements(call, 0)[2:], reach)


@dataclass(frozen=True, eq=False)
class Warped(Sums):
    """The row of ``grid_sampler``."""

    def error(self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format) -> Tensor:
        if call["interpolation_mode"] == NEAREST:
            raise UnsupportedOperator(
                f"{call.node}: which pixel is nearest to a place is rounded; leave arithmetic=... "
                "out"
            )
        return super().error(call, value, size, arithmetic)

    def size(self, call: Call) -> Tensor:
        """m at every place of the grid."""
        (x,) = call.inputs
        largest = torch.maximum(x.lower.abs(), x.upper.abs()).flatten(2).amax(2)
        places = call["grid"].shape[1:-1]
        m = largest.reshape(*largest.shape, *[1] * len(places)) * _of_grid(call).most ** 2
        return m.expand(*largest.shape, *places)

    def moved(self, call: Call) -> Tensor | None:
        """By a coordinate of the grid that is off by e, a place moves by e n / 2."""
        if not call.errors:
            return None
        (error,) = call.errors.values()  # of the grid: the images are perturbed
        sizes = torch.tensor(elements(call, 0)[:1:-1], dtype=error.dtype)
        places = (error * (sizes / 2)).sum(-1)
        return OF_MOVES * self.size(call) * places.unsqueeze(1)


ROWS: dict[Operator, Row] = {
    aten.upsample_linear1d: resized(aten.upsample_linear1d),
    aten.upsample_bilinear2d: resized(aten.upsample_bilinear2d),
    aten.upsample_trilinear3d: resized(aten.upsample_trilinear3d),
    aten.upsample_bicubic2d: resized(aten.upsample_bicubic2d, CUBIC),
    aten.grid_sampler_2d: Warped(_of_warp),
    aten.grid_sampler_3d: Warped(_of_warp),
}
