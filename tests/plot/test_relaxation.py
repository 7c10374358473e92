"""Drawn lines are below and above the function on the interval."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import boundlab as bl


@pytest.mark.parametrize(
    ("function", "lower", "upper"), [(torch.relu, -1.0, 2.0), (torch.sin, -1.0, 4.0)]
)
def test_the_lines_hold(function: object, lower: float, upper: float) -> None:
    ax = bl.plot.relaxation(function, lower, upper)
    lines = {line.get_label(): line.get_data() for line in ax.get_lines()}
    x = np.linspace(lower, upper, 101)
    y = function(torch.from_numpy(x)).numpy()
    assert (np.interp(x, *lines["upper line"]) >= y - 1e-9).all()
    assert (np.interp(x, *lines["lower line"]) <= y + 1e-9).all()
    assert lines["function"][0][0] < lower < upper < lines["function"][0][-1]


def test_an_empty_interval_is_refused() -> None:
    with pytest.raises(bl.ArgumentError, match="lower < upper"):
        bl.plot.relaxation(torch.relu, 1.0, 1.0)
