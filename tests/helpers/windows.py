"""Rows as windows and as dense tensors, compared."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.coefficients.window import Window
from boundlab.methods import backward, refine
from tests.helpers.contract import assert_close


@dataclass
class Seen:
    """What came by on the way back: how often rows were windows, and how often some dropped out."""

    windows: int = 0
    dropped: int = 0


def assert_same_bounds(
    net: bl.Net,
    regions: tuple[bl.Region, ...],
    monkeypatch: pytest.MonkeyPatch,
    knows_windows: bool = True,
) -> dict[str, Seen]:
    """Everything by windows, everything dense, and rows that never drop out. knows_windows: whether
    windows are to get further than the elements that are asked for."""
    fraction, worth = backward.MAX_WINDOW_FRACTION, refine.WORTH_DROPPING
    found, seen = {}, {}
    for name, most, drop in (
        ("windows", 4.0, worth),
        ("dense", -1.0, worth),
        ("windows, all rows", 4.0, -1.0),
        ("default", fraction, worth),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(backward, "MAX_WINDOW_FRACTION", most)
            patch.setattr(refine, "WORTH_DROPPING", drop)
            seen[name] = _watch(patch)
            with torch.no_grad():
                found[name] = net.bounds(*regions, method="crown")
    assert (seen["windows"].windows > seen["dense"].windows) == knows_windows
    assert not seen["windows, all rows"].dropped
    expected = found.pop("dense")
    for name, bounds in found.items():
        assert_close(bounds.lower, expected.lower, 10, name)
        assert_close(bounds.upper, expected.upper, 10, name)
    return seen


def _watch(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen, visit = Seen(), refine.Race.visit

    def watched(
        race: refine.Race, name: str, rows: backward.Rows, bias: Tensor, alone: bool
    ) -> Tensor | None:
        kept = visit(race, name, rows, bias, alone)
        seen.windows += isinstance(rows, Window)
        seen.dropped += kept is not None
        return kept

    monkeypatch.setattr(refine.Race, "visit", watched)
    return seen
