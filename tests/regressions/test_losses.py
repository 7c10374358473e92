"""Losses: wrong answers of the past, one test a cause."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import boundlab as bl
from boundlab.training.weights import attack_weights


def test_a_step_function_before_the_last_layer_in_a_robust_loss() -> None:
    """Its truth values have one-sided lines, which cannot be subtracted from each other."""
    torch.manual_seed(0)
    first, last = nn.Linear(3, 6).double(), nn.Linear(6, 4).double()
    model = lambda x: last((first(x) > 0).to(x.dtype) * 2 - 1)
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0])
    net = bl.capture(model, x)
    points = [x + 0.8 * (2 * torch.rand_like(x) - 1) for _ in range(300)]
    worst = torch.stack(
        [nn.functional.cross_entropy(model(p), y, reduction="none") for p in points]
    ).amax(0)
    for method in ("ibp", "crown-ibp"):
        assert (
            worst <= bl.robust_cross_entropy(net, bl.Linf(x, 0.8), y, method=method) + 1e-9
        ).all()


def test_losses_at_the_edges_of_perturbed_weights() -> None:
    x, labels = torch.rand(2, 3), torch.zeros(2, dtype=torch.int64)
    one = bl.capture(nn.Linear(3, 1), x)
    for method in ("ibp", "crown-ibp"):
        assert (
            float(
                bl.mean_loss_bound(
                    one, x, labels, perturb={"weight": bl.L2(eps=0.1)}, method=method
                ).detach()
            )
            == 0.0
        )
    with pytest.raises(bl.ArgumentError, match="empty batch"):
        bl.flatness(one, x[:0], labels[:0], 0.1)
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    net = bl.capture(tied, x)
    balls = bl.weight_balls(net, 0.1)
    worst, moved = attack_weights(tied, x, labels, balls, steps=5)
    assert set(moved) == set(balls)
    with torch.no_grad():
        assert worst <= float(bl.mean_loss_bound(net, x, labels, perturb=balls)) + 1e-6
    with pytest.raises(bl.ArgumentError, match="Euclidean"):
        attack_weights(tied, x, labels, bl.weight_balls(net, 0.1, norm=1.0))


@pytest.mark.parametrize("beta", [1.0, 0.5])
@pytest.mark.parametrize("fused", [True, False])
def test_a_loss_far_below_that_of_intervals(fused: bool, beta: float) -> None:
    """x - x is 0 for crown, while intervals see hundreds: exponentials relative to these
    underflow."""
    model = lambda x: torch.stack([300 * x[:, 0] - 300 * x[:, 0].abs(), x[:, 0] - 1.0], 1)
    x = torch.full((1, 1), 3.0)
    loss = bl.robust_cross_entropy(
        bl.capture(model, x),
        bl.Linf(x, 0.5),
        torch.tensor([0]),
        method="crown",
        fused=fused,
        beta=beta,
    )
    assert torch.isfinite(loss).all()
    for point in torch.linspace(2.5, 3.5, 11):
        assert F.cross_entropy(model(point.reshape(1, 1)), torch.tensor([0])) <= loss + 1e-4
