"""Searches over boxes of inputs that were stopped early."""

from __future__ import annotations

import time

import torch
from torch import nn

import boundlab as bl
from boundlab.verify.portfolio import Portfolio


def stopped_early() -> tuple[nn.Module, bl.Property, Portfolio]:
    """A property that holds, and a search for a proof of it with at least 40 open boxes."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    region = bl.Box(-torch.ones(1, 4), torch.ones(1, 4))
    seen = float(model(torch.rand(20000, 4) * 2 - 1).detach().max())
    prop = bl.Property(region, lambda y: y[:, 0] <= seen + 0.02)
    search = Portfolio(model, prop, time.monotonic() + 60.0)
    search.bounds()
    while len(search.inputs.pool) < 40 and not search.is_over:
        search.inputs.round()
    return model, prop, search
