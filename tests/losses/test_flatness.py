"""Perturbed weights: bounds of the mean loss over balls around them hold under attack, and are
taken over the shared ball."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import boundlab as bl
from boundlab.losses.flatness import mean_loss_bound, weight_balls
from tests.helpers.weights import MODELS, mlp, prepared

BACKWARD = ("crown-ibp", "crown", "forward+backward")


def number(value: Tensor) -> float:
    return float(value.detach())


def ball_point(centre: Tensor, direction: Tensor, radius: float, norm: float) -> Tensor:
    """The point of the ball's surface in a direction."""
    if norm == math.inf:
        return centre + radius * direction.sign()
    if norm == 1.0:  # the corner that a linear function is largest at
        step = torch.zeros_like(direction).flatten()
        step[direction.abs().argmax()] = direction.flatten()[direction.abs().argmax()].sign()
        return centre + radius * step.reshape(direction.shape)
    return centre + radius * direction / torch.linalg.vector_norm(direction, norm).clamp(min=1e-300)


def attacked(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    radii: dict[str, float],
    norm: float,
    tries: int = 60,
    steps: int = 12,
) -> float:
    """The largest mean loss found for weights in the balls, at random points and by gradient ascent
    from them."""
    state = {
        name: value.detach()
        for name, value in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items()
    }
    loss = lambda moved: F.cross_entropy(functional_call(model, {**state, **moved}, (x,)), y)
    best = -math.inf
    for attempt in range(tries):
        moved = {
            name: ball_point(state[name], torch.randn_like(state[name]), radius, norm)
            for name, radius in radii.items()
        }
        for _ in range(steps if attempt % 6 == 0 else 1):
            leaves = {name: value.clone().requires_grad_() for name, value in moved.items()}
            found = loss(leaves)
            best = max(best, float(found.detach()))
            gradients = torch.autograd.grad(found, list(leaves.values()))
            moved = {
                name: ball_point(state[name], g, radii[name], norm)
                for name, g in zip(leaves, gradients, strict=True)
            }
    return best


@pytest.mark.parametrize("norm", [2.0, math.inf, 1.0, 3.0])
@pytest.mark.parametrize("name", MODELS)
def test_no_weights_in_the_balls_have_a_larger_loss(name: str, norm: float) -> None:
    model, net, x, y = prepared(name)
    eps = 0.01 if norm == math.inf else 0.05
    balls = weight_balls(net, eps, relative=False, norm=norm)
    worst = attacked(model, x, y, dict.fromkeys(balls, eps), norm)
    found = {
        method: number(mean_loss_bound(net, x, y, perturb=balls, method=method))
        for method in ("ibp", "forward", *BACKWARD)
    }
    assert all(bound >= worst for bound in found.values()), (worst, found)
    assert found["crown"] <= found["ibp"] + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MODELS)
def test_thousands_of_weights_in_the_balls(name: str, seed: int) -> None:
    """2000 random points of each ball, every sixth of them climbed from in 12 steps: 5700 sets of
    weights for each network."""
    model, net, x, y = prepared(name, seed=seed, batch=8)
    for eps in (0.02, 0.2):
        balls = weight_balls(net, eps)
        radii = {name: number(torch.as_tensor(ball.eps)) for name, ball in balls.items()}  # type: ignore[attr-defined]
        worst = attacked(model, x, y, radii, 2.0, tries=2000)
        for method in ("ibp", *BACKWARD):
            assert number(mean_loss_bound(net, x, y, perturb=balls, method=method)) >= worst


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_inputs_at_once(name: str) -> None:
    model, net, x, y = prepared(name, seed=1)
    balls = weight_balls(net, 0.03, relative=False)
    region = bl.Linf(x, 0.02)
    bound = number(mean_loss_bound(net, region, y, perturb=balls))
    alone = number(mean_loss_bound(net, x, y, perturb=balls))
    for _ in range(20):
        assert (
            attacked(model, region.sample(), y, dict.fromkeys(balls, 0.03), 2.0, tries=3, steps=3)
            <= bound
        )
    assert alone <= bound


@pytest.mark.parametrize("method", BACKWARD)
def test_the_mean_is_bounded_over_the_shared_ball(method: str) -> None:
    """The bound of the mean is at most the mean of the bounds of single samples, and clearly less
    where they pull apart."""
    _, net, x, y = prepared("mlp", batch=24)
    balls = weight_balls(net, 0.1, relative=False)
    together = mean_loss_bound(net, x, y, perturb=balls, method=method)
    fused = bl.robust_cross_entropy(net, x, y, perturb=balls, method=method).mean()
    single = torch.stack(
        [
            mean_loss_bound(net, x[i : i + 1], y[i : i + 1], perturb=balls, method=method)
            for i in range(24)
        ]
    ).mean()
    assert together <= single + 1e-9 and together < fused
    assert single - together > 0.02


def test_flatness_is_zero_for_points_and_grows() -> None:
    _, net, x, y = prepared("mlp")
    values = [number(bl.flatness(net, x, y, eps)) for eps in (0.0, 0.01, 0.02, 0.04)]
    assert abs(values[0]) < 1e-9 and values == sorted(values) and values[1] > 1e-4
    by_parts = number(bl.flatness(net, x, y, 0.02, batch=2))
    assert by_parts >= values[2] - 1e-9
    assert number(bl.flatness(net, x, y, 0.02, parameters=["0.weight"])) < values[2]
    sizes = {name: ball.eps for name, ball in weight_balls(net, 0.02).items()}  # type: ignore[attr-defined]
    assert set(sizes) == {"0.weight", "2.weight", "4.weight"}
    torch.testing.assert_close(
        torch.as_tensor(sizes["2.weight"]), 0.02 * net.parameters()["2.weight"].norm()
    )


def test_the_bound_can_be_trained_with() -> None:
    torch.manual_seed(0)
    model = mlp()
    x, y = torch.rand(12, 6), torch.randint(0, 3, (12,))
    net = bl.capture(model, x)
    optimiser, seen = torch.optim.SGD(model.parameters(), lr=0.2), []
    for _ in range(40):
        optimiser.zero_grad()
        bound = mean_loss_bound(net, x, y, perturb=weight_balls(net, 0.1, relative=False))
        bound.backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
        optimiser.step()
        seen.append(number(bound))
    assert seen[-1] < seen[0] - 0.05


def test_what_is_wrong_is_said() -> None:
    _, net, x, y = prepared("mlp")
    with pytest.raises(bl.ArgumentError, match="nope"):
        weight_balls(net, 0.1, parameters=["nope"])
    with pytest.raises(bl.ArgumentError, match="negative"):
        bl.flatness(net, x, y, -0.1)
    with pytest.raises(bl.ArgumentError, match="labels"):
        mean_loss_bound(net, x, y[:2], perturb=weight_balls(net, 0.1))
    with pytest.raises(bl.ArgumentError, match="empty batch"):
        mean_loss_bound(net, x[:0], y[:0], perturb=weight_balls(net, 0.1))
