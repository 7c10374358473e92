"""Figures are drawn without a screen, and closed behind every test."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import pytest
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _without_screen() -> Iterator[None]:
    matplotlib.use("agg")
    yield
    plt.close("all")
