"""Margins and radii: shares are those of the numbers that are drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import boundlab as bl
from boundlab.radius import Radii

INF = float("inf")


def test_the_histogram_counts_all_and_mixes_no_signs() -> None:
    torch.manual_seed(0)
    values = torch.cat([torch.randn(40, 3), torch.tensor([[0.0, 1, 1], [-INF, 1, 1]])])
    least = values.min(1).values
    ax = bl.plot.margins(values)
    counted = sum(int(bar.get_height()) for bar in ax.patches)
    assert counted == 41  # all but -inf
    right = sum(int(bar.get_height()) for bar in ax.patches if bar.get_x() >= 0)
    assert right == int((least > 0).sum())
    assert ax.get_title(loc="left") == f"{100 * right / 42:.3g} % of 42 verified"


@pytest.mark.parametrize("value", [0.0, 2.0, -2.0, 1e-30, -INF])
def test_a_single_margin(value: float) -> None:
    ax = bl.plot.margins(torch.tensor([value]))
    share = 100 * (value > 0)
    assert ax.get_title(loc="left") == f"{share} % of 1 verified"
    for bar in ax.patches:
        assert (bar.get_x() >= 0) == (value > 0)


def test_sorted_margins_fall_and_name_the_share() -> None:
    values = torch.tensor([[1.0], [-1.0], [3.0], [-INF]])
    ax = bl.plot.margins(values, "sorted", label="crown")
    line = ax.get_lines()[0]
    assert line.get_label() == "crown: 50 % of 4 verified"
    assert np.array_equal(line.get_ydata(), [3, 1, -1, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (torch.tensor([float("nan")]), "sorted", "NaN"),
        (torch.zeros(0, 3), "sorted", "shape"),
        (torch.zeros(2, 2, 2), "sorted", "shape"),
        (torch.zeros(2), "histgram", "Did you mean 'histogram'"),
        ("abc", "sorted", "must be numbers"),
    ],
)
def test_odd_margins_are_refused(values: object, kind: str, message: str) -> None:
    with pytest.raises(bl.ArgumentError, match=message):
        bl.plot.margins(values, kind)


def test_shares_by_radius() -> None:
    """Four samples: proved to 1 and broken at 2, proved to 1 and never broken, never proved, and
    one that is misclassified."""
    found = Radii(
        torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.tensor([2.0, INF, 3.0, 0.0]), torch.zeros(4, 1)
    )
    ax = bl.plot.radii(found, label="l2")
    proved, unbroken = (dict(zip(*line.get_data(), strict=True)) for line in ax.get_lines())
    assert proved == {0: 0.5, 1: 0, 2: 0, 3: 0}
    assert unbroken == {0: 0.75, 1: 0.75, 2: 0.5, 3: 0.5}
    nothing = Radii(torch.zeros(1), torch.full((1,), INF), torch.zeros(1, 1))
    bl.plot.radii(nothing)
    with pytest.raises(bl.ArgumentError, match="no samples"):
        bl.plot.radii(Radii(torch.zeros(0), torch.zeros(0), torch.zeros(0, 1)))
