"""Intersections of half planes hold exactly the points that satisfy all limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boundlab as bl
from boundlab.plot.half_planes import polygon

NUMBERS = st.floats(-8, 8, allow_nan=False).map(lambda value: round(value, 3))
WAYS = st.tuples(NUMBERS, NUMBERS).filter(lambda way: math.hypot(*way) > 0.01)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6)


def inside(corners: np.ndarray, point: np.ndarray, tolerance: float) -> bool:
    """Whether a point lies in the convex polygon of these corners, whichever way they turn. The
    direction of an edge that is as short as rounding says nothing."""
    apart = np.abs(corners - np.roll(corners, 1, axis=0)).max(1) > 1e-9
    corners = corners[apart] if apart.any() else corners[:1]
    if len(corners) == 1:
        return bool(np.abs(point - corners[0]).max() <= tolerance)
    ahead = np.roll(corners, -1, axis=0) - corners
    aside = point - corners
    turns = ahead[:, 0] * aside[:, 1] - ahead[:, 1] * aside[:, 0]
    lengths = np.hypot(*ahead.T)
    if len(corners) == 2:
        along = (aside * ahead).sum(1)
        return bool((np.abs(turns) <= tolerance * lengths).all() and (along >= -tolerance).all())
    return bool((turns >= -tolerance * lengths).all() or (turns <= tolerance * lengths).all())


@settings(max_examples=60, deadline=None)
@given(st.lists(WAYS, min_size=1, max_size=6), POINTS)
def test_it_contains_what_the_limits_are_made_of(
    ways: list[tuple[float, float]], points: list[tuple[float, float]]
) -> None:
    """Limits that are attained by some points: all of them lie in the polygon, and every corner
    that is none of the frame satisfies all limits."""
    directions, members = np.array(ways), np.array(points)
    values = members @ directions.T
    lower, upper = values.min(0), values.max(0)
    found = polygon(directions, lower, upper)
    for member in members:
        assert inside(found.corners, member, 1e-6)
    attained = found.corners @ directions.T
    assert (attained >= lower - 1e-4).all()
    assert (attained <= upper + 1e-4).all()


def test_a_box() -> None:
    found = polygon(np.eye(2), np.array([0.0, -1.0]), np.array([2.0, 3.0]))
    assert {tuple(corner) for corner in found.corners} == {(0, -1), (2, -1), (2, 3), (0, 3)}
    assert not any(found.cut)


def test_redundant_and_repeated_directions_add_no_corners() -> None:
    ways = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    found = polygon(ways, np.array([0, 0, 0, -1, -9.0]), np.array([1, 1, 2, 0, 9.0]))
    assert len(found.corners) == 4


@pytest.mark.parametrize(("width", "corners"), [(1.0, 2), (0.0, 1)])
def test_sets_without_an_interior(width: float, corners: int) -> None:
    found = polygon(np.eye(2), np.array([0.0, 1.0]), np.array([width, 1.0]))
    assert len(found.corners) == corners


def test_a_slanted_segment_is_not_lost() -> None:
    """0.1 + 0.2 is not 0.3: the limits of a point, rounded, contradict each other by 4e-17."""
    ways = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    values = np.array([0.1, 0.2, 0.3])
    assert np.abs(polygon(ways, values, values).corners - [0.1, 0.2]).max() < 1e-6


def test_what_has_no_limit_is_cut_by_the_frame() -> None:
    found = polygon(np.eye(2), np.array([0.0, 0.0]), np.array([np.inf, 1.0]))
    assert sum(found.cut) == 2
    assert found.corners[:, 0].max() > 500
    everything = polygon(np.eye(2), np.full(2, -np.inf), np.full(2, np.inf))
    assert all(everything.cut)


def test_limits_that_contradict_each_other_are_refused() -> None:
    ways = np.array([[1.0, 0.0], [1.0, 0.0]])
    with pytest.raises(bl.ArgumentError, match="no point satisfies"):
        polygon(ways, np.array([0.0, 2.0]), np.array([1.0, 3.0]))


def test_directions_are_checked() -> None:
    with pytest.raises(bl.ArgumentError, match="must not be zero"):
        polygon(np.zeros((1, 2)), np.zeros(1), np.zeros(1))
    with pytest.raises(bl.ArgumentError, match="finite"):
        polygon(np.array([[np.inf, 1.0]]), np.zeros(1), np.zeros(1))
