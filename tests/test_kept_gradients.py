"""When results carry gradients: in train mode, or where what is given requires them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl

Ask = Callable[..., Tensor]
ASKS: dict[str, Ask] = {
    "bounds": lambda net, region, **how: net.bounds(region, **how).lower,
    "spec": lambda net, region, **how: net.bounds(region, spec=torch.eye(3)[:2], **how).upper,
    "alpha": lambda net, region, **how: net.bounds(region, method="alpha-crown", **how).lower,
    "margins": lambda net, region, **how: net.margins(region, labels=[0, 1], **how),
    "linear": lambda net, region, **how: net.linear_bounds(region, **how).lower_b,
}


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_modes(ask: Ask) -> None:
    training, verifying = bl.capture(model(), X), bl.capture(model().eval(), X)
    region = bl.Linf(X, 0.1)
    assert ask(training, region).requires_grad
    assert not ask(training, region, grad=False).requires_grad
    found = ask(verifying, region)
    assert not found.requires_grad and found.numpy().shape == found.shape
    assert torch.allclose(found, ask(training, region), atol=1e-6)
    loss = ask(verifying, region, grad=True).sum()
    loss.backward()
    assert all(value.grad is not None for value in verifying.parameters().values())
    with torch.no_grad():
        assert not ask(training, region).requires_grad
        assert not ask(verifying, region, grad=True).requires_grad


@pytest.mark.parametrize(
    "region",
    [
        lambda x: bl.Linf(x.requires_grad_(), 0.1),
        lambda x: bl.Linf(x, torch.tensor(0.1, requires_grad=True)),
        lambda x: bl.Linf(x, torch.tensor([0.1, 0.2]).requires_grad_(), -1.0, 1.0),
        lambda x: bl.L2(x, torch.tensor(0.1, requires_grad=True)),
        lambda x: bl.Box(x - 0.1, (x + 0.1).requires_grad_()),
        lambda x: Widened(torch.tensor(0.1, requires_grad=True)),
    ],
)
def test_regions_that_require_gradients(region: Callable[[Tensor], Any]) -> None:
    net = bl.capture(model().eval(), X)
    for name in ("bounds", "margins", "linear"):
        found = ASKS[name](net, region(X.clone()))
        assert found.requires_grad
        found.sum().backward()


class Widened(bl.Linf):
    """A region of one's own that is no dataclass."""

    def __init__(self, by: Tensor) -> None:
        super().__init__(X, 2 * by)


def test_other_inputs_and_weights() -> None:
    net = bl.capture(lambda x, shift: (x + shift).relu(), X, X)
    assert net.bounds(bl.Linf(X, 0.1), X.clone().requires_grad_()).lower.requires_grad
    weights = bl.capture(model().eval(), X)
    eps = torch.tensor(0.1, requires_grad=True)
    assert weights.bounds(X, perturb={"0.weight": bl.L2(eps=eps)}).lower.requires_grad
    assert not weights.bounds(X, perturb={"0.weight": bl.L2(eps=0.1)}).lower.requires_grad


def test_parts_in_train_mode_and_functions() -> None:
    """Whatever is not all in eval mode may be trained."""
    region = bl.Linf(X, 0.1)
    mixed = model().eval()
    mixed[2].train()
    assert bl.capture(mixed, X).bounds(region).lower.requires_grad
    verifying = model().eval()
    assert not bl.capture(lambda x: verifying(x).exp(), X).bounds(region).lower.requires_grad
    weight = torch.ones(4, requires_grad=True)
    assert bl.capture(lambda x: x * weight, X).bounds(region).lower.requires_grad
    program = torch.export.export(model(), (X,))
    assert not bl.capture(program, X).bounds(region).lower.requires_grad


def test_losses_keep_gradients() -> None:
    net, labels = bl.capture(model().eval(), X), torch.tensor([0, 1])
    assert bl.robust_cross_entropy(net, bl.Linf(X, 0.1), labels).requires_grad
    assert bl.flatness(net, X, labels, 0.01).requires_grad


def test_problems() -> None:
    region = bl.Linf(X, 0.1)
    assert bl.capture(model(), X).problem(region).bounds().lower.requires_grad
    assert not bl.capture(model().eval(), X).problem(region).bounds().lower.requires_grad
