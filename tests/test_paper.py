"""The worked example of the paper's appendix, with zero lower slopes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import boundlab as bl


@pytest.fixture
def example() -> tuple[bl.Net, bl.Linf]:
    weights = [[[2.0, 1.0], [-3.0, 4.0]], [[4.0, -2.0], [2.0, 1.0]], [[-2.0, 1.0]]]
    layers = [nn.Linear(2, len(w), bias=False) for w in weights]
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight.data = torch.tensor(weight)
    x = torch.tensor([[0.0, 1.0]])
    net = bl.capture(nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]), x)
    return net, bl.Linf(x, 2.0)


@pytest.mark.parametrize(
    ("method", "lower", "upper"),
    [("ibp", -56.0, 32.0), ("forward", -56.0, 170 / 7), ("forward+backward", -42.0, 170 / 7)],
)
def test_worked_example(
    example: tuple[bl.Net, bl.Linf], method: str, lower: float, upper: float
) -> None:
    net, region = example
    bounds = net.bounds(region, method=method, slopes="zero")
    assert bounds.lower.item() == pytest.approx(lower, abs=1e-4)
    assert bounds.upper.item() == pytest.approx(upper, abs=1e-4)


def test_worked_example_intermediate_bounds(example: tuple[bl.Net, bl.Linf]) -> None:
    net, region = example
    full = net.bounds(region, method="forward", slopes="zero", intermediates=True)
    assert full["0"].lower.tolist() == [[-5.0, -10.0]]
    assert full["0"].upper.tolist() == [[7.0, 18.0]]
    assert full["2"].lower.flatten().tolist() == pytest.approx([-36.0, 0.0], abs=1e-4)
    # the paper rounds it to 24
    assert full["2"].upper.flatten().tolist() == pytest.approx([28.0, 170 / 7], abs=1e-4)
