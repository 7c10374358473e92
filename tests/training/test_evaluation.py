"""Errors of a trained network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from boundlab.attacks import AttackSettings
from boundlab.data import Images
from boundlab.training.evaluation import evaluate, wilson


def test_confidence_intervals() -> None:
    assert wilson(0.0, 100)[0] == 0.0 and wilson(0.0, 100)[1] == pytest.approx(0.037, abs=1e-3)
    low, high = wilson(0.5, 10_000)
    assert low == pytest.approx(0.4902, abs=1e-4) and high == pytest.approx(0.5098, abs=1e-4)
    assert wilson(0.3, 0) == (0.0, 1.0)


def test_errors_are_what_is_there() -> None:
    """f_1 - f_0 = 2 (x - 0.5): a radius of 0.1 flips exactly the points within 0.1 of the middle,
    and everything else is proved. The last label is wrong."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=True))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model[1].bias.copy_(torch.tensor([0.5, -0.5]))
    pixels = torch.tensor([76, 104, 115, 150, 180, 230], dtype=torch.uint8).reshape(-1, 1, 1, 1)
    data = Images(pixels, torch.tensor([0, 0, 0, 1, 1, 0]), 2, "points")
    found = evaluate(model, data, 0.1, ("ibp",), AttackSettings(20, 1))
    assert (found.clean, found.attacked, found.verified["ibp"]) == (1 / 6, 4 / 6, 4 / 6)
    found = evaluate(model, data, 0.1, ("ibp",), AttackSettings(20, 0))
    assert (found.clean, found.attacked) == (1 / 6, 1 / 6)
    found = evaluate(model, data, 0.0, ("ibp",), AttackSettings(20, 1))
    assert (found.clean, found.attacked, found.verified["ibp"]) == (1 / 6, 1 / 6, 1 / 6)
