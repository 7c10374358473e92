"""Tubes contain the trajectories, steps between which nothing is known included."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Polygon
from torch import Tensor

import boundlab as bl

INF = float("inf")


def area(ax: Axes) -> Polygon:
    (found,) = [artist for artist in ax.get_children() if isinstance(artist, Polygon)]
    return found


def limits_at(ax: Axes, x: float) -> tuple[float, float]:
    """Where a vertical line enters and leaves the area."""
    corners = area(ax).get_xy()
    crossings = []
    for (x0, y0), (x1, y1) in pairwise(corners):
        if min(x0, x1) <= x <= max(x0, x1) and x0 != x1:
            crossings.append(y0 + (x - x0) / (x1 - x0) * (y1 - y0))
    return min(crossings), max(crossings)


def bounds(lower: list[float], upper: list[float]) -> bl.Bounds:
    return bl.Bounds(torch.tensor(lower)[None, :, None], torch.tensor(upper)[None, :, None])


def test_steps_and_the_way_between_lie_inside() -> None:
    torch.manual_seed(0)
    runs = torch.rand(50, 6, 2)
    found = bl.Bounds(runs.min(0).values[None], runs.max(0).values[None])
    ax = bl.plot.tube(found, 1, trajectories=runs, label="crown", colour="C2")
    for x in np.linspace(0, 5, 41):
        low, high = limits_at(ax, float(x))
        k = min(int(x), 4)
        between = runs[:, k, 1] + (x - k) * (runs[:, k + 1, 1] - runs[:, k, 1])
        assert low - 1e-6 <= between.min() <= between.max() <= high + 1e-6
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "state 1")
    assert ax.get_legend().get_texts()[0].get_text() == "crown"


def test_bounds_step_by_step_are_the_same() -> None:
    low, high = torch.rand(4, 3), 1 + torch.rand(4, 3)
    whole = bl.plot.tube(bl.Bounds(low, high), 2)
    parts = [bl.Bounds(low[k : k + 1], high[k : k + 1]) for k in range(4)]
    steps = bl.plot.tube([bl.Box(low[:1], high[:1]), *parts[1:]], 2)
    flat = bl.plot.tube([bl.Bounds(low[k], high[k]) for k in range(4)], 2)
    for ax in (steps, flat):
        assert np.array_equal(area(ax).get_xy(), area(whole).get_xy())


def test_an_infinite_step_covers_the_way_to_it_and_from_it() -> None:
    ax = bl.plot.tube(bounds([0, 0, -INF, 0, 0], [1, 1, INF, 1, 1]))
    bottom, top = ax.get_ylim()
    assert -2 < bottom < 0 < 1 < top < 3
    for x in (1.01, 1.99, 2.5, 2.99):
        low, high = limits_at(ax, x)
        assert low < bottom < top < high
    assert limits_at(ax, 0.5) == (0, 1)


def test_one_side_only_and_nothing_finite() -> None:
    ax = bl.plot.tube(bounds([0, 0], [INF, INF]))
    assert limits_at(ax, 0.5)[0] == 0
    assert limits_at(ax, 0.5)[1] > ax.get_ylim()[1]
    bl.plot.tube(bounds([-INF, -INF], [INF, INF]))
    bl.plot.tube(bounds([0], [1]))  # a single step


def test_times_are_those_given() -> None:
    ax = bl.plot.tube(bounds([0, 0, 0], [1, 1, 1]), times=[0.0, 0.5, 2.0])
    assert area(ax).get_xy()[:, 0].max() == 2.0
    assert ax.get_xlabel() == "time"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"times": [0, 1]}, "2 times, but bounds of 3 steps"),
        ({"times": [0, 0, 1]}, "rise"),
        ({"state": 1}, "no state 1"),
        ({"sample": 1}, "no sample 1"),
        ({"trajectories": torch.zeros(4, 2, 1)}, "2 steps, but there are bounds of 3"),
        ({"trajectories": torch.zeros(4, 2)}, "shape"),
        ({"trajectories": [torch.zeros(4, 1)] * 2}, "2 steps"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Tensor], message: str) -> None:
    with pytest.raises(bl.ArgumentError, match=message):
        bl.plot.tube(bounds([0, 0, 0], [1, 1, 1]), **given)


def test_shapes_are_checked() -> None:
    with pytest.raises(bl.ArgumentError, match="samples, steps, states"):
        bl.plot.tube(bl.Bounds(torch.zeros(3), torch.ones(3)))
    with pytest.raises(bl.ArgumentError, match="of a step"):
        bl.plot.tube([bl.Bounds(torch.zeros(1, 1, 3), torch.ones(1, 1, 3))])
