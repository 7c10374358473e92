"""How long searches expect to take, and how many domains they bound at once."""

from __future__ import annotations

import math

import pytest

from boundlab.verify.batch import BatchSize
from boundlab.verify.trend import FEWEST, Trend


def trend_of(bounds: list[float]) -> Trend:
    """A search whose domains have doubled with every bound, a second for each of the first."""
    found, count = Trend(), FEWEST
    for number, bound in enumerate(bounds):
        found.note(count if number == 0 else count // 2, bound, count / FEWEST / (1 + (number > 0)))
        count *= 2
    return found


def test_bounds_that_rise_evenly_are_followed_to_0() -> None:
    found = trend_of([-5.0, -4.0, -3.0, -2.0])
    assert found.domains == 8 * FEWEST and found.seconds == pytest.approx(8.0)
    assert found.expected_seconds == pytest.approx(8 * 2**2 - 8)  # two more doublings


@pytest.mark.parametrize("bounds", [[-1.0], [-1.0, -1.0, -1.0], [-math.inf, -2.0], [-1.0, -2.0]])
def test_nothing_is_expected_of_bounds_that_do_not_rise(bounds: list[float]) -> None:
    assert trend_of(bounds).expected_seconds == math.inf


def test_a_search_that_is_done_needs_no_time() -> None:
    assert trend_of([-3.0, -2.0, -1.0, 0.0]).expected_seconds == 0


def test_batches_follow_the_time_they_take() -> None:
    batch = BatchSize(first=32, least=8, most=128, seconds=1.0)
    sizes = []
    for seconds in (0.1, 0.1, 0.1, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0):
        batch.follow(batch.size, seconds)
        sizes.append(batch.size)
    assert sizes == [64, 128, 128, 128, 64, 32, 16, 8, 8]
    batch.follow(3, 0.1)  # too few domains to tell
    assert batch.size == 8
    batch.shrink()
    assert batch.size == 2
