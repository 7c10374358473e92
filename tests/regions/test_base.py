"""Regions of one's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.relaxations.interval import Interval
from tests.helpers.contract import steps


class Simplex(bl.Region):
    """A user's own region: convex combinations of given points, one set of points for each sample
    (see docs/regions.md)."""

    def __init__(self, points: Tensor) -> None:
        self.points = points  # (count, batch, *shape)

    @property
    def centre(self) -> Tensor:
        return self.points.mean(0)

    def hull(self) -> Interval:
        return Interval(self.points.amin(0), self.points.amax(0))

    def minimum(self, coefficients: Tensor) -> Tensor:
        # (count, rows, batch)
        values = (coefficients.unsqueeze(0) * self.points.unsqueeze(1)).flatten(3).sum(3)
        return values.amin(0)

    def sample(self, generator: torch.Generator | None = None, batched: bool = True) -> Tensor:
        weights = torch.rand(len(self.points), generator=generator).to(self.points)
        return torch.tensordot(weights / weights.sum(), self.points, 1)


@pytest.mark.parametrize("method", ["ibp", "forward", "crown", "crown-ibp", "forward+backward"])
def test_a_users_own_region(method: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    region = Simplex(torch.randn(4, 2, 3))
    bounds = bl.capture(net, region.centre).bounds(region, method=method, alpha=steps(method))
    for _ in range(50):
        y = net(region.sample())
        assert ((bounds.lower <= y + 1e-5) & (y <= bounds.upper + 1e-5)).all()


@pytest.mark.parametrize("k", [2, torch.tensor([0, 1, 3])])
def test_an_l0_region_of_some_samples(k: int | torch.Tensor) -> None:
    region = bl.L0(torch.rand(3, 5), k, lower=torch.zeros(3, 5), upper=torch.rand(3, 5) + 1)
    rows = torch.randn(4, 3, 5)
    some = region.samples(torch.tensor([2, 0]))
    torch.testing.assert_close(some.minimum(rows[:, [2, 0]]), region.minimum(rows)[:, [2, 0]])
    torch.testing.assert_close(some.hull().upper, region.hull().upper[[2, 0]])
