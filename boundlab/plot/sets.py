"""Sets of outputs in two dimensions: boxes, and polygons from bounds in several directions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Polygon as Patch
from matplotlib.typing import ColorType
from torch import Tensor

from boundlab.errors import ArgumentError
from boundlab.plot import half_planes
from boundlab.plot.reading import Array, Set, array, column, plane, rows
from boundlab.plot.style import FILL, INK, given_or_new, given_or_next, legend_beside
from boundlab.results import Bounds

AXES = np.eye(2)


def boxes(
    bounds: Set | Sequence[Set],
    dims: tuple[int, int] = (0, 1),
    *,
    points: object = None,
    label: str | None = None,
    colour: ColorType | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw bounds of two outputs as boxes, one for each sample.

    bounds: ``net.bounds(region)`` of shape (samples, outputs), or several, such as one for each
    step of a closed loop; a region stands for its hull. dims: the two outputs. points: members to
    draw beside them, (points, outputs). A side that is infinite goes on beyond the picture.
    """
    lower, upper = (plane(side, dims) for side in rows(bounds))
    found = [half_planes.polygon(AXES, low, up) for low, up in zip(lower, upper, strict=True)]
    return _draw(found, _points(points, dims), (label, colour), dims, ax)


def polygon(
    bounds: Bounds,
    spec: Tensor,
    dims: tuple[int, int] = (0, 1),
    *,
    points: object = None,
    label: str | None = None,
    colour: ColorType | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the set of all values of two outputs that bounds in several directions allow, one for
    each sample: an intersection of half planes, which is computed exactly.

    spec: (directions, outputs), such as ``bl.plot.directions(8)``; it must be zero for the other
    outputs. bounds: ``net.bounds(region, spec=spec)``, (samples, directions). dims: the two
    outputs. points: members to draw beside it, (points, outputs). A set that has no limit in some
    direction goes on beyond the picture.
    """
    ways = _ways(array(spec, "spec"), dims)
    lower, upper = rows(bounds)
    if lower.shape[1] != len(ways):
        raise ArgumentError(
            f"spec has {len(ways)} directions, but there are bounds of {lower.shape[1]}: give the "
            "spec that was bounded, net.bounds(region, spec=spec)"
        )
    found = [half_planes.polygon(ways, low, up) for low, up in zip(lower, upper, strict=True)]
    return _draw(found, _points(points, dims), (label, colour), dims, ax)


def directions(count: int, outputs: int = 2, dims: tuple[int, int] = (0, 1)) -> Tensor:
    """Specifications (count, outputs) of ``count`` directions in the plane of two outputs, evenly
    over half a turn: with lower and upper bounds each gives two sides of a polygon."""
    if count < 1:
        raise ArgumentError(f"count must be at least 1, got {count}")
    angles = torch.arange(count, dtype=torch.float64) * (math.pi / count)
    found = torch.zeros(count, outputs, dtype=torch.float64)
    found[:, dims[0]], found[:, dims[1]] = angles.cos(), angles.sin()
    return found.to(torch.get_default_dtype())


def _ways(spec: Array, dims: tuple[int, int]) -> Array:
    """The directions of a spec in the plane of two outputs: (directions, 2)."""
    if spec.ndim != 2:
        raise ArgumentError(f"spec must have the shape (directions, outputs), got {spec.shape}")
    found = np.stack([column(spec, dim, "output") for dim in dims], 1)
    others = spec.copy()
    others[:, list(dims)] = 0
    if others.any():
        raise ArgumentError(
            f"spec must be zero for all outputs but {dims[0]} and {dims[1]}: bounds of sums with "
            "other outputs do not limit these two"
        )
    return found


def _points(points: object, dims: tuple[int, int]) -> Array:
    if points is None:
        return np.zeros((0, 2))
    return plane(points, dims)


def _draw(
    polygons: Sequence[half_planes.Polygon],
    points: Array,
    look: tuple[str | None, ColorType | None],
    dims: tuple[int, int],
    ax: Axes | None,
) -> Axes:
    """Draw polygons and points; look: label and colour."""
    label, colour = look
    if ax is None:
        ax = given_or_new(None)
        ax.set(xlabel=f"output {dims[0]}", ylabel=f"output {dims[1]}")
    colour = given_or_next(ax, colour)
    for k, one in enumerate(polygons):
        patch = Patch(
            one.corners, facecolor=to_rgba(colour, FILL), edgecolor=colour, linewidth=1.2,
            label=label if k == 0 else None,
        )  # fmt: skip
        ax.add_artist(patch)  # limits are not those of the corners that are cut
        ax.update_datalim(_seen(one, points))
        if len(one.corners) == 1:
            ax.plot(*one.corners.T, marker="o", markersize=3, color=colour)
    if len(points):
        ax.plot(*points.T, ".", color=INK, markersize=2, markeredgewidth=0, zorder=3)
    ax.autoscale_view()
    if label is not None:
        legend_beside(ax)
    return ax


def _seen(one: half_planes.Polygon, points: Array) -> Array:
    """Places that the picture must reach to: corners, points, and something of a set that goes
    on."""
    corners = one.corners[~np.array(one.cut)]
    places = np.concatenate([corners, points])
    if not any(one.cut):
        return places
    if not len(places):
        places = np.zeros((1, 2)) + one.corners.mean(0)
    middle, reach = places.mean(0), np.ptp(places, axis=0).max()
    if reach == 0:
        reach = max(1.0, float(np.abs(middle).max()))
    return np.concatenate([places, middle - reach, middle + reach], axis=None).reshape(-1, 2)
