"""Rows as windows and as dense tensors, compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.methods import backward, refine
from tests.helpers.contract import slack


def assert_same_bounds(
    model: Callable[..., Tensor], regions: tuple[bl.Region, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything by windows, everything dense, and rows that never drop out."""
    net = bl.capture(model, *(region.centre for region in regions))
    found = {}
    for name, share, drop in (
        ("windows", 4.0, 0.8),
        ("dense", -1.0, 0.8),
        ("windows, all rows", 4.0, -1.0),
        ("default", 0.5, 0.8),
    ):
        monkeypatch.setattr(backward, "MAX_WINDOW_FRACTION", share)
        monkeypatch.setattr(refine, "WORTH_DROPPING", drop)
        with torch.no_grad():
            found[name] = net.bounds(*regions, method="crown")
    expected = found.pop("dense")
    room = 10 * slack(expected.lower) + 10 * slack(expected.upper)
    for name, bounds in found.items():
        assert (bounds.lower - expected.lower).abs().le(room).all() and (
            bounds.upper - expected.upper
        ).abs().le(room).all(), name
