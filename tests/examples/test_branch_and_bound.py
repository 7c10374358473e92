"""The example of branch and bound against all activation patterns."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from examples.branch_and_bound import prove


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def least(model: nn.Sequential, eps: float) -> float:
    """The minimum over the box |x| <= eps: under each pattern of active neurons the output is
    linear on a polygon, and least at one of its corners."""
    w1, b1, w2, b2, _, _ = (parameter.detach().double() for parameter in model.parameters())
    sides = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).double()
    found: list[Tensor] = []
    for pattern in itertools.product((0.0, 1.0), repeat=len(b1) + len(b2)):
        active = torch.tensor(pattern).double()
        first = active[: len(b1)]
        w, b = w2 @ (first[:, None] * w1), w2 @ (first * b1) + b2
        signs = 2 * active - 1
        normals = torch.cat(
            [sides, signs[:, None] * torch.cat([w1, w])]
        )  # normals . x + heights >= 0
        heights = torch.cat([torch.full((4,), eps).double(), signs * torch.cat([b1, b])])
        i, j = torch.triu_indices(len(heights), len(heights), 1)
        pairs = torch.stack([normals[i], normals[j]], 1)
        good = torch.linalg.det(pairs).abs() > 1e-12
        corners = torch.linalg.solve(pairs[good], -torch.stack([heights[i], heights[j]], 1)[good])
        found.append(corners[(corners @ normals.T + heights >= -1e-9).all(1)])
    with torch.no_grad():
        return float(model.double()(torch.cat(found)).min())


@pytest.mark.parametrize("seed", range(4))
def test_against_all_patterns(seed: int) -> None:
    lowest = least(network(seed), 2.0)
    x = torch.zeros(1, 2)
    net, region = bl.capture(network(seed), x), bl.Linf(x, 2.0)
    with torch.no_grad():
        problem = net.problem(region, spec=torch.ones(1, 1))
        assert prove(problem, ["0", "2"], lowest - 0.05)
        assert not prove(problem, ["0", "2"], lowest + 1e-4, most=40)


def test_more_than_crown_can() -> None:
    """Of the first network crown proves no more than 1.6 below, and optimised slopes 0.4."""
    x = torch.zeros(1, 2)
    net, region = bl.capture(network(0), x), bl.Linf(x, 2.0)
    lowest = least(network(0), 2.0)
    with torch.no_grad():
        optimised = net.bounds(region, method="alpha-crown").lower
    assert optimised < lowest - 0.2
