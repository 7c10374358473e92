"""Resize and Upsample: along each axis, every element of the result is a weighted sum of elements
of x. The weights follow from sizes and attributes alone, so that the operator is a matrix for each
axis; where each row of it has a single 1, elements are picked instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.errors import ArgumentError, UnsupportedOperator
from boundlab.onnx.rows.shapes import axes_of
from boundlab.onnx.table import Floats, Ints, check_room, row


@dataclass(frozen=True)
class Axis:
    """One axis that is resized. size, wanted: its number of elements before and after; scale:
    their ratio as it is given; start, end: the part of it that tf_crop_and_resize takes."""

    size: int
    wanted: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class Way:
    """How elements are found and weighted: the attributes of Resize."""

    mode: str = "nearest"
    transformation: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False


def _half_pixel_symmetric(axis: Axis, x: np.ndarray) -> np.ndarray:
    adjusted = axis.wanted / (axis.scale * axis.size)
    return axis.size / 2 * (1 - adjusted) + (x + 0.5) / axis.scale - 0.5


def _pytorch_half_pixel(axis: Axis, x: np.ndarray) -> np.ndarray:
    if axis.wanted == 1:
        return np.zeros_like(x)
    return (x + 0.5) / axis.scale - 0.5


def _align_corners(axis: Axis, x: np.ndarray) -> np.ndarray:
    """By the size that the result has, as in torch and onnxruntime; examples of the standard take
    the one that the scale would give without rounding."""
    return x * (axis.size - 1) / max(axis.wanted - 1, 1)


def _crop(axis: Axis, x: np.ndarray) -> np.ndarray:
    last = axis.size - 1
    if axis.wanted == 1:
        return 0.5 * (axis.start + axis.end) * last + 0 * x
    return axis.start * last + x * (axis.end - axis.start) * last / (axis.wanted - 1)


PLACES: dict[str, Callable[[Axis, np.ndarray], np.ndarray]] = {
    "half_pixel": lambda axis, x: (x + 0.5) / axis.scale - 0.5,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda axis, x: x / axis.scale,
    "tf_half_pixel_for_nn": lambda axis, x: (x + 0.5) / axis.scale,
    "tf_crop_and_resize": _crop,
}
"""Where in x an element of the result lies."""

ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel: a cubic on [0, 1], another on [1, 2]."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _places(axis: Axis, way: Way, dtype: type[np.floating] = np.float64) -> np.ndarray:
    return PLACES[way.transformation](axis, np.arange(axis.wanted, dtype=dtype))


@lru_cache(maxsize=32)
def nearest(axis: Axis, way: Way) -> np.ndarray:
    """Which element each of the result is, (wanted,). In single precision, as scales are given: by
    a scale of 0.6, the third element lies at 3 / 0.6 = 5, which the nearest double would miss."""
    check_room(axis.wanted)
    places = _places(axis, way, np.float32)
    return np.clip(ROUNDINGS[way.nearest](places), 0, axis.size - 1).astype(int)


@lru_cache(maxsize=32)
def weights(axis: Axis, way: Way) -> tuple[np.ndarray, np.ndarray]:
    """The matrix (wanted, size) of an axis, and what is added (wanted,): the extrapolated value
    where an element lies outside."""
    check_room(axis.wanted, axis.size, itemsize=32)
    places = _places(axis, way)
    if way.mode == "nearest":
        chosen = nearest(axis, way)
        matrix = np.zeros((axis.wanted, axis.size))
        matrix[np.arange(axis.wanted), chosen] = 1
    else:
        matrix = _interpolated(places, axis, way)
    added = np.zeros(axis.wanted)
    if way.transformation == "tf_crop_and_resize":
        outside = (places < 0) | (places > axis.size - 1)
        matrix[outside] = 0
        added[outside] = way.extrapolation
    return matrix, added


def _interpolated(places: np.ndarray, axis: Axis, way: Way) -> np.ndarray:
    """Weights of a kernel around each place; neighbours outside are the element at the border, or
    left out."""
    stretch = min(axis.scale, 1.0) if way.antialias else 1.0
    reach = math.ceil((2 if way.mode == "cubic" else 1) / stretch) + 1
    matrix = np.zeros((axis.wanted, axis.size))
    first = np.floor(places).astype(int)
    for step in range(-reach, reach + 1):
        neighbour = first + step
        distance = (neighbour - places) * stretch
        weight = _cubic(distance, way.cubic) if way.mode == "cubic" else _triangle(distance)
        outside = (neighbour < 0) | (neighbour >= axis.size)
        if way.exclude_outside:
            weight = np.where(outside, 0, weight)
        np.add.at(matrix, (np.arange(axis.wanted), np.clip(neighbour, 0, axis.size - 1)), weight)
    return matrix / matrix.sum(1, keepdims=True)


def resized(x: Tensor, axes: dict[int, Axis], way: Way) -> Tensor:
    """x with some axes resized."""
    changed = {dim: axis for dim, axis in axes.items() if _changes(axis)}
    if way.mode == "nearest" and _is_plain_upsampling(x, changed, way):
        sizes = [changed[dim].wanted if dim in changed else x.shape[dim] for dim in (2, 3)]
        return F.interpolate(x, size=sizes, mode="nearest")
    for dim, axis in changed.items():
        if way.mode == "nearest" and way.transformation != "tf_crop_and_resize":
            x = x.index_select(dim, torch.from_numpy(nearest(axis, way)).to(x.device))
            continue
        matrix, added = weights(axis, way)
        if added.any():
            if len(changed) > 1:
                raise UnsupportedOperator("extrapolation along several axes")
            x = _along(x, dim, matrix) + _constant(added, x).reshape(
                [-1 if place == dim else 1 for place in range(x.dim())]
            )
        else:
            x = _along(x, dim, matrix)
    return x


def _changes(axis: Axis) -> bool:
    whole = (axis.start, axis.end) == (0.0, 1.0)
    return axis.size != axis.wanted or axis.scale != 1 or not whole


def _is_plain_upsampling(x: Tensor, axes: dict[int, Axis], way: Way) -> bool:
    """Whether torch's own operator picks the same elements."""
    if x.dim() != 4 or not axes or not set(axes) <= {2, 3}:
        return False
    if way.transformation == "tf_crop_and_resize":
        return False
    return all(
        (nearest(axis, way) == np.arange(axis.wanted) * axis.size // axis.wanted).all()
        for axis in axes.values()
    )


def _constant(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like)


def _along(x: Tensor, dim: int, matrix: np.ndarray) -> Tensor:
    return F.linear(x.movedim(dim, -1), _constant(matrix, x)).movedim(-1, dim)


# -- operators -------------------------------------------------------------------------------------


@row("Upsample")
def upsample(x: Tensor, scales: Floats, *, mode: str = "nearest") -> Tensor:
    return resize(
        x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )  # fmt: skip


@row("Resize")
def resize_by_scales(x: Tensor, scales: Floats, *, mode: str = "nearest") -> Tensor:
    """Axes that grow repeat the element before a place; those that shrink take the one behind."""
    x = upsample(x, tuple(max(scale, 1.0) for scale in scales), mode=mode)
    return resize(
        x, None, tuple(min(scale, 1.0) for scale in scales), mode=mode,
        coordinate_transformation_mode="asymmetric", nearest_mode="ceil",
    )  # fmt: skip


@row("Resize", since=11)
def resize(
    x: Tensor,
    roi: Floats | None = None,
    scales: Floats | None = None,
    sizes: Ints | None = None,
    *,
    antialias: int = 0,
    axes: Ints | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    known = (
        mode in ("nearest", "linear", "cubic", "bilinear")
        and coordinate_transformation_mode in PLACES
        and nearest_mode in ROUNDINGS
    )
    if not known:
        raise UnsupportedOperator(
            f"mode {mode!r} by {coordinate_transformation_mode!r}, {nearest_mode!r}"
        )
    way = Way(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        extrapolation_value,
        bool(antialias),
    )
    dims = axes_of(axes if axes is not None else range(x.dim()), x.dim())
    if min((*(scales or ()), *(sizes or ()), 1)) <= 0 or 0 in x.shape:
        raise ArgumentError("its scales and sizes must be positive")
    found = _axes(x, dims, scales, sizes, keep_aspect_ratio_policy)
    if roi and coordinate_transformation_mode == "tf_crop_and_resize":
        half = len(roi) // 2
        found = {
            dim: Axis(axis.size, axis.wanted, axis.scale, roi[place], roi[half + place])
            for place, (dim, axis) in enumerate(found.items())
        }
    return resized(x, found, way)


def _axes(
    x: Tensor, dims: list[int], scales: Floats | None, sizes: Ints | None, policy: str
) -> dict[int, Axis]:
    """The axes with their new sizes, from scales or from sizes."""
    if scales:
        return {
            dim: Axis(x.shape[dim], max(math.floor(x.shape[dim] * scale), 1), scale)
            for dim, scale in zip(dims, scales, strict=True)
        }
    if not sizes:
        raise ArgumentError("it has neither scales nor sizes")
    if policy == "stretch":
        return {
            dim: Axis(x.shape[dim], size, size / x.shape[dim])
            for dim, size in zip(dims, sizes, strict=True)
        }
    ratios = [size / x.shape[dim] for dim, size in zip(dims, sizes, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return {dim: Axis(x.shape[dim], math.floor(x.shape[dim] * scale + 0.5), scale) for dim in dims}


GRIDS = {
    "bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest",
    "bicubic": "bicubic", "cubic": "bicubic",
}  # fmt: skip
"""Names of the modes, which changed with opset 20."""


@row("GridSample")
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """Elements of images at the places of a grid, which may be that of one image for all."""
    if mode not in GRIDS:
        raise UnsupportedOperator(f"mode {mode!r}")
    places = grid.expand(x.shape[0], *grid.shape[1:])
    return F.grid_sample(x, places, GRIDS[mode], padding_mode, bool(align_corners))
