"""Upper bounds of the loss: above every attack, below the interval bound, at any scale."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from tests.helpers.models import image_batch, small_cnn


def strongest(net: nn.Module, x: Tensor, y: Tensor, eps: float, steps: int = 30) -> Tensor:
    """The largest loss that gradient ascent and random corners find, by sample."""
    best = F.cross_entropy(net(x), y, reduction="none").detach()
    for start in range(4):
        point = x + eps * (
            2 * torch.rand_like(x) - 1 if start % 2 else torch.sign(torch.randn_like(x))
        )
        for _ in range(steps):
            point = point.detach().requires_grad_()
            losses = F.cross_entropy(net(point), y, reduction="none")
            best = torch.maximum(best, losses.detach())
            (gradient,) = torch.autograd.grad(losses.sum(), point)
            point = torch.clamp(point + 0.2 * eps * gradient.sign(), x - eps, x + eps)
        best = torch.maximum(best, F.cross_entropy(net(point), y, reduction="none").detach())
    return best


@settings(deadline=None, max_examples=12)
@given(
    st.integers(0, 999),
    st.sampled_from([0.0, 1e-3, 0.05, 0.3, 2.0]),
    st.sampled_from([0.1, 1.0, 30.0]),
    st.integers(2, 7),
)
def test_theorem_3(seed: int, eps: float, scale: float, classes: int) -> None:
    """max loss <= fused <= the loss of the interval bounds that the chords of exp were taken
    over."""
    model = small_cnn(classes, scale=scale, seed=seed).eval()
    x, y = image_batch(seed, classes)
    net, region = bl.capture(model, x), bl.Linf(x, eps)
    attacked = strongest(model, x, y, eps)
    slack = 1e-9 * (1 + attacked.abs())
    of_intervals = bl.robust_cross_entropy(net, region, y, method="ibp")
    for method in ("crown-ibp", "crown"):
        fused = bl.robust_cross_entropy(net, region, y, method=method)
        assert (attacked <= fused + slack).all()
        assert (fused <= of_intervals + slack).all()
        unfused = bl.robust_cross_entropy(net, region, y, method=method, fused=False)
        assert (attacked <= unfused + slack).all()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    "method", ["ibp", "crown-ibp", "crown", "forward", "forward+backward", "alpha-crown"]
)
def test_every_method_is_an_upper_bound(method: str, fused: bool) -> None:
    model = small_cnn().eval()
    x, y = image_batch(3, 5)
    found = bl.robust_cross_entropy(
        bl.capture(model, x), bl.Linf(x, 0.1), y, method=method, fused=fused
    )
    assert found.shape == y.shape
    assert (strongest(model, x, y, 0.1) <= found + 1e-9).all()


def test_with_radius_0_it_is_the_loss() -> None:
    model = small_cnn()
    x, y = image_batch(1, 5)
    net = bl.capture(model.train(), x)
    expected = F.cross_entropy(model(x), y, reduction="none")
    for beta in (0.0, 0.3, 1.0):
        for fused in (True, False):
            torch.testing.assert_close(
                bl.robust_cross_entropy(net, bl.Linf(x, 0.0), y, beta=beta, fused=fused), expected
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1e3, 1e6])
def test_no_scale_of_the_outputs_overflows(scale: float, dtype: torch.dtype) -> None:
    model = small_cnn(scale=scale).eval().to(dtype)
    x, y = image_batch(2, 5)
    x = x.to(dtype)
    net = bl.capture(model, x)
    for beta in (0.0, 0.5, 1.0):
        loss = bl.robust_cross_entropy(net, bl.Linf(x, 0.2), y, beta=beta)
        (gradient,) = torch.autograd.grad(loss.sum(), model[0].weight)
        assert torch.isfinite(loss).all() and torch.isfinite(gradient).all()
        assert (loss >= F.cross_entropy(model(x), y, reduction="none") - 1e-5 * scale).all()


def test_a_mean_of_both_bounds_lies_between_them() -> None:
    x, y = image_batch(5, 5)
    net = bl.capture(small_cnn().eval(), x)
    ends = [bl.robust_cross_entropy(net, bl.Linf(x, 0.1), y, beta=beta) for beta in (1.0, 0.5, 0.0)]
    assert (ends[0] <= ends[1] + 1e-12).all() and (ends[1] <= ends[2] + 1e-12).all()
    torch.testing.assert_close(ends[1].exp(), (ends[0].exp() + ends[2].exp()) / 2)


def test_gradients() -> None:
    model = small_cnn().train()
    x, y = image_batch(6, 5)
    net = bl.capture(model, x)
    weight = model[0].weight

    def loss(values: Tensor, beta: float) -> Tensor:
        with torch.no_grad():
            old = weight.detach().clone()
            weight.copy_(values)
        found = bl.robust_cross_entropy(net, bl.Linf(x, 0.03), y, beta=beta).sum()
        (gradient,) = torch.autograd.grad(found, weight)
        with torch.no_grad():
            weight.copy_(old)
        return torch.stack([found.detach(), *gradient.flatten()])

    at = weight.detach().clone()
    direction = torch.randn_like(at)
    for beta in (0.0, 0.5, 1.0):
        h = 1e-6
        slope = (loss(at + h * direction, beta)[0] - loss(at - h * direction, beta)[0]) / (2 * h)
        exact = loss(at, beta)[1:] @ direction.flatten()
        torch.testing.assert_close(slope, exact, rtol=1e-4, atol=1e-6)


def test_labels_change_without_capturing_again() -> None:
    model = small_cnn().eval()
    x, _ = image_batch(7, 5)
    net = bl.capture(model, x)
    for label in range(5):
        y = torch.full((4,), label)
        alone = torch.cat(
            [bl.robust_cross_entropy(net, bl.Linf(x[i : i + 1], 0.1), y[:1]) for i in range(4)]
        )
        torch.testing.assert_close(bl.robust_cross_entropy(net, bl.Linf(x, 0.1), y), alone)


def test_perturbed_weights() -> None:
    model = small_cnn().eval()
    x, y = image_batch(8, 5)
    net, name = bl.capture(model, x), "0.weight"
    found = bl.robust_cross_entropy(net, x, y, perturb={name: bl.L2(eps=0.05)})
    weight = model[0].weight
    centre = weight.detach().clone()
    for _ in range(50):
        step = torch.randn_like(centre)
        with torch.no_grad():
            weight.copy_(centre + 0.05 * step / step.norm())
        assert (F.cross_entropy(model(x), y, reduction="none") <= found + 1e-9).all()
    with torch.no_grad():
        weight.copy_(centre)


def test_wrong_arguments() -> None:
    x, y = image_batch(0, 5)
    net = bl.capture(small_cnn().eval(), x)
    region = bl.Linf(x, 0.1)
    for call, text in (
        (lambda: bl.robust_cross_entropy(net, region, y, beta=1.5), "beta"),
        (lambda: bl.robust_cross_entropy(net, region, y, method="crwn"), "method"),
        (lambda: bl.robust_cross_entropy(net, region, y.double()), "whole numbers"),
        (lambda: bl.robust_cross_entropy(net, region, y[:2]), "one a sample"),
        (lambda: bl.robust_cross_entropy(net, region, y + 5), "between 0 and 4"),
        (lambda: bl.robust_cross_entropy(net, x, y), "nothing is perturbed"),
    ):
        with pytest.raises(bl.ArgumentError, match=text):
            call()


class Precisions(nn.Module):
    """Both precisions in one network, the output in the given one."""

    def __init__(self, output: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.output, other = output, torch.float64 if output == torch.float32 else torch.float32
        self.first, self.last = nn.Linear(6, 8, dtype=other), nn.Linear(8, 5, dtype=output)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.first(x.to(self.first.weight.dtype))
        out: Tensor = self.last(torch.relu(hidden).to(self.output))
        return out


@pytest.mark.parametrize("output", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_networks_of_both_precisions(output: torch.dtype, beta: float) -> None:
    model = Precisions(output)
    x, y = torch.rand(4, 6, generator=torch.Generator().manual_seed(1)), torch.arange(4)
    found = bl.robust_cross_entropy(bl.capture(model, x), bl.Linf(x, 0.1), y, beta=beta)
    found.sum().backward()
    assert (found.detach() >= strongest(model, x, y, 0.1) - 1e-5).all()
    same = Precisions(output).double()
    same.output = torch.float64
    alike = bl.robust_cross_entropy(
        bl.capture(same, x.double()), bl.Linf(x.double(), 0.1), y, beta=beta
    )
    alike.sum().backward()
    torch.testing.assert_close(found.double(), alike, rtol=1e-5, atol=1e-5)
    for a, b in zip(model.parameters(), same.parameters(), strict=True):
        assert a.grad is not None
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-4, atol=1e-5)
