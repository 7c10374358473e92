"""Charts: what is drawn is what was given."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundlab.commands.charts import (
    HEIGHT,
    Curve,
    Part,
    binned,
    brief,
    columns,
    counted,
    share_chart,
    ticks,
)
from tests.helpers.pages import EVIL, Structure

SHARES = st.floats(0, 1)


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 1.0), (0.0, 1e-5), (-3e6, 12.0), (2.0, 2.0), (-0.3, 17.2), (0.0, 0.15)]
)
def test_ticks(low: float, high: float) -> None:
    found = ticks(low, high)
    assert len(found) <= 9
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)
    assert 0.0 in found or low > 0 or high < 0


def test_the_end_of_an_axis_is_a_tick() -> None:
    assert ticks(0.0, 0.15)[-1] == 0.15 and ticks(-0.3, 0.0)[0] == -0.3


def test_brief_numbers() -> None:
    values = (0.0, -0.0852, 1.26, 9.96, 57.3, 123.4, 123456.0, math.inf, math.nan)
    expected = ["0", "-0.085", "1.3", "10", "57", "123", "1.2e+05", "∞", "NaN"]
    assert [brief(value) for value in values] == expected


@given(st.lists(st.lists(SHARES, min_size=1, max_size=5), min_size=1, max_size=9))
def test_curves_go_through_their_points_and_names_do_not_touch(shares: list[list[float]]) -> None:
    curves = [
        Curve("style0", f"{EVIL}{k}", [(0.1 * i, share) for i, share in enumerate(own)])
        for k, own in enumerate(shares)
    ]
    text = share_chart(curves, "radius", "label")
    Structure(text)
    assert EVIL not in text and text.count("<circle") == sum(map(len, shares))
    heights = [float(height) for height in re.findall(r'cy="([\d.]+)"', text)]
    expected = [HEIGHT - 50 - share * (HEIGHT - 66) for own in shares for share in own]
    assert heights == pytest.approx(expected, abs=0.051)
    names = re.findall(r'y="([\d.-]+)" text-anchor="start"', text)
    places = sorted(float(place) for place in names)
    assert len(places) == len(shares)
    assert min((b - a for a, b in itertools.pairwise(places)), default=15.0) > 14.8


COUNTS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=30)


@given(COUNTS)
def test_columns_count_everything_once_and_stay_inside(counts: list[tuple[int, int]]) -> None:
    names = [f"n{k}" for k in range(len(counts))]
    parts = [Part("proved", "p", [a for a, _ in counts]), Part("open", "o", [b for _, b in counts])]
    for text in (
        columns(names, parts, "radius", "label"),
        binned([0.5 * k - 1 for k in range(len(counts) + 1)], parts, "margin", "label"),
    ):
        Structure(text)
        for letter, part in (("p", parts[0]), ("o", parts[1])):
            found = re.findall(rf"<title>{letter}, [^:]*: (\d+)</title>", text)
            assert list(map(int, found)) == [count for count in part.counts if count]
        for y, height in re.findall(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', text):
            assert 15.9 <= float(y) <= float(y) + float(height) <= HEIGHT - 49.9


def test_values_are_counted_in_their_column() -> None:
    assert counted([-3.0, -1.0, -0.5, 0.0, 0.9, 1.0, 7.0], -1.0, 1.0, 2) == [3, 4]
    assert counted([], -1.0, 1.0, 2) == [0, 0]
