"""Reachable tubes of closed loops over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Polygon as Patch
from matplotlib.typing import ColorType
from torch import Tensor

from boundlab.errors import ArgumentError
from boundlab.plot.reading import Array, Set, array, column, runs, steps
from boundlab.plot.style import FILL, INK, given_or_new, given_or_next, legend_beside

BEYOND = 1000.0
"""Infinite bounds are drawn so many times as far away as anything finite."""


def tube(
    bounds: Set | Sequence[Set],
    state: int = 0,
    *,
    sample: int = 0,
    trajectories: Tensor | Sequence[Tensor] | None = None,
    times: object = None,
    label: str | None = None,
    colour: ColorType | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw between which limits a state of a closed loop stays, step by step.

    bounds: one for each step, of shape (samples, states), as a model gives that returns a tuple of
    states, or one of shape (samples, steps, states); a region, such as the set of initial states,
    stands for its hull. state, sample: which one is drawn. trajectories: sampled ones beside it,
    (runs, steps, states), or the states (runs, states) of each step. times: (steps,), by default 0,
    1, 2, ...

    The bounds are those at the steps; between them the tube is that of straight lines, and lines
    between members of two successive sets lie inside. What is infinite goes on beyond the picture.
    """
    lower, upper = (column(side, state, "state") for side in steps(bounds, sample))
    at = _times(times, len(lower))
    paths = np.zeros((0, len(lower)))
    if trajectories is not None:
        paths = column(runs(trajectories), state, "state")
        if paths.shape[1] != len(lower):
            raise ArgumentError(
                f"trajectories have {paths.shape[1]} steps, but there are bounds of {len(lower)}"
            )
    if ax is None:
        ax = given_or_new(None)
        ax.set(xlabel="step" if times is None else "time", ylabel=f"state {state}")
    _fill(ax, at, lower, upper, paths, (label, colour))
    _trajectories(ax, at, paths)
    ax.autoscale_view()
    if label is not None:
        legend_beside(ax)
    return ax


def _times(times: object, count: int) -> Array:
    if times is None:
        return np.arange(count, dtype=np.float64)
    found = array(times, "times").reshape(-1)
    if len(found) != count:
        raise ArgumentError(f"there are {len(found)} times, but bounds of {count} steps")
    if not (np.isfinite(found).all() and (np.diff(found) > 0).all()):
        raise ArgumentError("times must rise from step to step")
    return found


def _fill(
    ax: Axes,
    at: Array,
    lower: Array,
    upper: Array,
    paths: Array,
    look: tuple[str | None, ColorType | None],
) -> None:
    """The area between the limits; look: label and colour."""
    label, colour = look
    seen = np.concatenate([lower, upper, paths.reshape(-1)])
    seen = seen[np.isfinite(seen)]
    if not len(seen):
        seen = np.zeros(1)
    far = BEYOND * max(1.0, float(np.abs(seen).max()))
    low, up = np.maximum(lower, -far), np.minimum(upper, far)
    colour = given_or_next(ax, colour)
    x, bottom, top = _twice(at), _by_segment(low, far), _by_segment(up, far)
    around = np.concatenate([np.stack([x, bottom], 1), np.stack([x, top], 1)[::-1]])
    area = Patch(around, facecolor=to_rgba(colour, FILL), linewidth=0, label=label)
    ax.add_artist(area)  # which leaves the limits of the picture alone: the area may be infinite
    for side in (low, up):
        drawn = np.where(np.abs(side) < far, side, np.nan)
        ax.plot(at, drawn, color=colour, linewidth=1.0, linestyle="-", marker=".", markersize=3)
    ax.update_datalim([(at[0], float(seen.min())), (at[-1], float(seen.max()))])


def _twice(values: Array) -> Array:
    """Start and end of every segment; of a single value that value."""
    if len(values) == 1:
        return values
    return np.stack([values[:-1], values[1:]], 1).reshape(-1)


def _by_segment(side: Array, far: float) -> Array:
    """Limits at the start and the end of every segment; both far away if one of them is, since
    nothing is known of the way there."""
    pairs = _twice(side).reshape(-1, 1 if len(side) == 1 else 2)
    distant = np.abs(pairs) >= far
    sign = np.sign(np.where(distant, pairs, 0).sum(1, keepdims=True))
    return np.where(distant.any(1, keepdims=True), sign * far, pairs).reshape(-1)


def _trajectories(ax: Axes, at: Array, paths: Array) -> None:
    """All trajectories as one line with gaps, which is a small part of a file."""
    if not len(paths):
        return
    gap = np.full((len(paths), 1), np.nan)
    x = np.concatenate([np.broadcast_to(at, paths.shape), gap], 1).reshape(-1)
    y = np.concatenate([paths, gap], 1).reshape(-1)
    ax.plot(x, y, color=INK, linewidth=0.6, linestyle="-", alpha=0.8, zorder=3)
