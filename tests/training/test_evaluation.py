"""Errors of a trained network, and attacks on it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from boundlab.training.evaluation import Attack, attack, wilson


def test_confidence_intervals() -> None:
    assert wilson(0.0, 100)[0] == 0.0 and wilson(0.0, 100)[1] == pytest.approx(0.037, abs=1e-3)
    low, high = wilson(0.5, 10_000)
    assert low == pytest.approx(0.4902, abs=1e-4) and high == pytest.approx(0.5098, abs=1e-4)
    assert wilson(0.3, 0) == (0.0, 1.0)


def test_an_attack_stays_inside_and_finds_what_is_there() -> None:
    """f_1 - f_0 = 2 (x - 0.5): a radius of 0.1 flips exactly the points within 0.1 of the
    middle."""
    model = nn.Linear(1, 2, bias=True)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model.bias.copy_(torch.tensor([0.5, -0.5]))
    x = torch.tensor([[0.3], [0.41], [0.45], [0.59], [0.7]])
    y = (x[:, 0] > 0.5).long()
    assert attack(model, x, y, 0.1, Attack(20, 1)).tolist() == [False, True, True, True, False]
    assert not attack(model, x, y, 0.0, Attack(20, 1)).any()
