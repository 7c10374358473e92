"""Inputs whose channels come last in memory: the same bounds, losses and gradients, and layers keep
that order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import boundlab as bl
from boundlab.kernels import blocks, rectifiers
from boundlab.losses.clean_pass import CleanPass
from tests.helpers.watching import watch

METHODS = ["ibp", "forward", "crown-ibp", "crown", "forward+backward", "alpha-crown"]


class Branches(nn.Module):
    """A branches with all that joins and parts channels: concatenation, a sum, pooling, groups, a
    shift per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.left, self.right = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.Conv2d(8, 4, 1)
        self.down, self.late = nn.Conv2d(12, 8, 3, stride=2, padding=1), nn.BatchNorm2d(12)
        self.head = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.first(x)))
        h = h + torch.relu(self.left(h))
        h = torch.relu(self.late(torch.cat([h, self.right(h)], 1)))
        return self.head(nn.functional.avg_pool2d(torch.relu(self.down(h)), 2).flatten(1))


@pytest.fixture
def branches() -> tuple[Branches, Tensor, Tensor]:
    torch.manual_seed(0)
    model = Branches().double()
    for norm in (model.norm, model.late):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.5, 0.5)
        norm.running_mean.uniform_(-0.2, 0.2)  # type: ignore[union-attr, operator]
    return model, torch.rand(3, 3, 16, 16).double(), torch.tensor([0, 3, 1])


@pytest.mark.parametrize("method", METHODS)
def test_bounds(branches: tuple[Branches, Tensor, Tensor], method: str) -> None:
    model, x, _ = branches
    net = bl.capture(model.eval(), x)
    alpha = bl.Alpha(iterations=2, inner=1) if method == "alpha-crown" else None
    with torch.no_grad():
        plain = net.bounds(bl.Linf(x, 0.02), method=method, alpha=alpha)
        last = net.bounds(
            bl.Linf(x.contiguous(memory_format=torch.channels_last), 0.02),
            method=method,
            alpha=alpha,
        )
    torch.testing.assert_close((last.lower, last.upper), (plain.lower, plain.upper))


@pytest.mark.parametrize("how", [{"beta": 0.0}, {"beta": 0.5}, {"beta": 0.5, "fused": False}])
def test_losses_and_gradients(
    branches: tuple[Branches, Tensor, Tensor],
    how: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, x, labels = branches
    net = bl.capture(model.train(), x)
    monkeypatch.setitem(blocks.BLOCK, "cpu", 1 << 8)  # so that steps are made in parts
    parts = watch(monkeypatch, blocks, "_parts")

    def step(x: Tensor) -> list[Tensor]:
        x = x.detach().requires_grad_()
        with CleanPass(net) as seen:
            model(x)
        loss = bl.robust_cross_entropy(
            net, bl.Linf(x, 0.01, lower=0.0, upper=1.0), labels, clean=seen.values, **how
        )
        return [loss, *torch.autograd.grad(loss.sum(), [x, *model.parameters()])]

    for plain, last in zip(
        step(x), step(x.contiguous(memory_format=torch.channels_last)), strict=True
    ):
        torch.testing.assert_close(last, plain)
    assert parts


class Orders(TorchDispatchMode):
    """Counts operations on large tensors of which some have the channels last and some have not."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        found = func(*args, **(kwargs or {}))
        large = lambda t: (
            isinstance(t, Tensor)
            and t.dim() >= 4
            and t.numel() >= 3 * 4 * 16 * 16
            and 0 not in t.stride()
        )
        sizes = [t for t in (*args, found) if large(t)]
        orders = {
            tuple(sorted((d for d in range(t.dim()) if t.shape[d] > 1), key=t.stride))
            for t in sizes
            if t.dim() == sizes[0].dim()
        }
        if len(orders) > 1 and "backward" not in str(func):
            self.mixed.append(str(func))
        return found


def test_steps_between_convolutions_keep_the_order(
    branches: tuple[Branches, Tensor, Tensor],
) -> None:
    """No pass over coefficients or intervals works on two orders at once; the only copies are those
    around pooling and flattening."""
    model, x, labels = branches
    net = bl.capture(model.train(), x)
    x = x.contiguous(memory_format=torch.channels_last)
    with Orders() as seen:
        bl.robust_cross_entropy(net, bl.Linf(x, 0.01), labels, beta=0.5).sum().backward()
    assert not [
        name
        for name in seen.mixed
        if not name.startswith(
            ("aten.clone", "aten.copy_", "aten.convolution", "aten.permute", "aten.new_empty")
        )
    ]


def test_blocks_keep_the_order_of_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", {"cpu": 60})
    parts = watch(monkeypatch, blocks, "_parts")
    rows = torch.randn(1, 7, 4, 5, 3).permute(0, 1, 4, 2, 3)
    with torch.no_grad():
        centre, radius = rectifiers.rectified_ball(rows[0], rows[0].abs())
        coefficients, _ = rectifiers.rectified(rows, rows[0] - 1, rows[0] + 1, True)
    assert centre.is_contiguous(memory_format=torch.channels_last) and radius.is_contiguous(
        memory_format=torch.channels_last
    )
    assert coefficients.stride() == rows.stride()
    assert len(parts) == 2
