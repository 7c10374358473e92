"""The initialisation and the terms of the warm-up."""

from __future__ import annotations

import torch
from torch import nn

import boundlab as bl
from boundlab.net.questions import Options
from boundlab.training.regularisers import balance, ibp_initialisation, preactivations, tightness


def test_the_initialisation_keeps_the_width_of_bounds() -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Linear(300, 300), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(300, 10))
    x = torch.randn(8, 300)

    def growth() -> float:
        net = bl.capture(model, x)
        found = net.ask((bl.Linf(x, 1e-3),), {}, Options("ibp"))
        widths = [float(layer.radius.detach().mean()) for layer in preactivations(found)]
        return widths[-1] / widths[0]

    usual = growth()
    ibp_initialisation(model, 0)
    assert usual > 50 and 0.3 < growth() < 3
    layers_ = preactivations(bl.capture(model, x).ask((bl.Linf(x, 1e-3),), {}, Options("ibp")))
    assert len(layers_) == 6
    assert (
        float(tightness(layers_, torch.tensor(1e-3)).detach()) >= 0
        and 0 <= float(balance(layers_).detach()) <= 2
    )
