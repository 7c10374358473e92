"""Rows that vanish outside a window give what dense rows give: the same bounds, for every operator
that knows windows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from tests.helpers.captures import captured
from tests.helpers.windows import assert_same_bounds
from tests.networks import NETWORKS

CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain": (lambda: nn.Conv2d(3, 4, 3), (3, 9, 8)),
    "stride": (lambda: nn.Conv2d(3, 4, 3, stride=2), (3, 9, 8)),
    "stride and padding": (lambda: nn.Conv2d(3, 4, 3, stride=(2, 1), padding=(1, 2)), (3, 9, 8)),
    "stride past the kernel": (lambda: nn.Conv2d(3, 4, 2, stride=3), (3, 9, 8)),
    "dilation": (lambda: nn.Conv2d(3, 4, 3, dilation=2, padding=2), (3, 9, 8)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), (4, 7, 7)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (4, 7, 7)),
    "many channels": (lambda: nn.Conv2d(6, 4, 3, padding=1), (6, 6, 6)),
    "same padding": (lambda: nn.Conv2d(3, 4, 3, padding="same"), (3, 6, 6)),
    "reflecting padding": (
        lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
        (3, 6, 6),
    ),
    "no bias": (lambda: nn.Conv2d(3, 4, 3, bias=False), (3, 6, 6)),
    "1d": (lambda: nn.Conv1d(3, 4, 3, stride=2, padding=1), (3, 12)),
    "3d": (lambda: nn.Conv3d(2, 3, 2, stride=2, padding=1), (2, 5, 5, 4)),
    "transposed": (
        lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        (3, 5, 4),
    ),
}


class Net(nn.Module):
    """A convolution, an activation, then a head around it."""

    def __init__(self, first: nn.Module, head: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.head = first, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.first(x)))


def _conv(channels: int, dims: int, **kwargs: int) -> nn.Module:
    return (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](channels, 3, 3, padding=1, **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two convolutions in a row with an activation between and behind, and a shortcut around the
    second."""
    torch.manual_seed(0)
    make, shape = CONVOLUTIONS[name]
    first = make()
    out = first(torch.zeros(1, *shape)).shape
    second, third = _conv(out[1], len(shape) - 1), _conv(3, len(shape) - 1)
    shortcut = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(shape) - 2](out[1], 3, 1)
    linear = nn.Linear(torch.Size((3, *out[2:])).numel(), 5)
    modules = nn.ModuleList([second, third, shortcut, linear])

    def head(h: Tensor) -> Tensor:
        h = torch.relu(shortcut(h) + second(h) * 0.5 - 0.1)
        return linear(torch.tanh(third(h) + h).flatten(1))

    model = Net(first, head).to(dtype)
    modules.to(dtype)
    x = torch.rand(2, *shape, dtype=dtype)
    net = bl.capture(model, x)
    assert_same_bounds(net, (bl.Linf(x, 0.1),), monkeypatch)
    assert_same_bounds(net, (bl.L2(x, 0.3),), monkeypatch)


KERNEL = torch.randn(3, 4, 3, 3, generator=torch.Generator().manual_seed(3))


HEADS: dict[str, Callable[[Tensor], Tensor]] = {
    "average pooling": lambda h: F.relu(F.avg_pool2d(h, 2) - 0.2),
    "average pooling, overlapping": lambda h: F.relu(F.avg_pool2d(h, 3, stride=2, padding=1) - 0.2),
    "average pooling, edges apart": lambda h: F.relu(
        F.avg_pool2d(h, 3, stride=2, padding=1, count_include_pad=False) - 0.2
    ),
    "average pooling, uneven": lambda h: F.relu(F.avg_pool2d(h, (4, 5), ceil_mode=True) - 0.2),
    "average of all": lambda h: F.relu(F.adaptive_avg_pool2d(h, 1) - 0.2),
    "max pooling": lambda h: F.relu(F.max_pool2d(h, 2) - 0.4),
    "max pooling, overlapping": lambda h: F.relu(F.max_pool2d(h, 3, stride=2, padding=1) - 0.4),
    "resized": lambda h: F.relu(F.interpolate(h, scale_factor=2) - 0.2),
    "concatenated": lambda h: F.relu(torch.cat([h, h.flip(1)], 1) - 0.2),
    "concatenated places": lambda h: F.relu(
        F.conv2d(torch.cat([h, h - 1], 3), KERNEL.to(h), padding=1) - 0.2
    ),
    "concatenated with a constant": lambda h: F.relu(
        torch.cat([torch.ones_like(h), h], 1).mean(1) - 0.7
    ),
    "sliced channels": lambda h: F.relu(
        F.conv2d(F.pad(h, (1, 1))[:, :, :, 1:-1], KERNEL.to(h), padding=1)[:, :, 1:-2] - 0.2
    ),
    "selected": lambda h: F.relu(F.conv2d(h, KERNEL.to(h), padding=1)[:, 1] + h[:, -1] - 0.2),
    "selected column": lambda h: F.relu(F.conv2d(h, KERNEL.to(h), padding=1)[..., 2] - 0.2),
    "sliced": lambda h: F.relu(h[:, 1:, ::2] - 0.2),
    "permuted": lambda h: F.relu(h.permute(0, 2, 3, 1) - 0.2),
    "transposed": lambda h: F.relu(h.transpose(1, 3) - 0.2),
    "flattened": lambda h: F.relu(h.flatten(2) - 0.2),
    "all flattened": lambda h: F.relu(h.flatten(1) - 0.2),
    "unflattened": lambda h: F.relu(h.unflatten(1, (2, 2)) - 0.2),
    "squeezed": lambda h: F.relu(h.unsqueeze(1).squeeze(1) - 0.2),
    "scaled by channels": lambda h: F.relu(
        h * torch.tensor([1.0, -2.0, 0.5, 3.0])[:, None, None] - 0.2
    ),
    "scaled by places": lambda h: F.relu(h * torch.linspace(-1, 1, 6) - 0.1),
    "centred": lambda h: F.relu(h - h.mean((2, 3), keepdim=True)),
    "summed": lambda h: F.relu(h.sum(1) - h.mean(1)),
    "multiplied": lambda h: F.relu(h * h.flip(2) - 0.1),
    "negated": lambda h: F.relu(-h + 0.2),
    "subtracted from a number": lambda h: F.relu(0.2 - h),
    "matrix": lambda h: F.relu(h @ torch.linspace(-1, 1, 30, dtype=h.dtype).reshape(6, 5)),
    "matrices": lambda h: F.relu(h @ h.transpose(2, 3) - 0.3),
    "softmax": lambda h: F.relu(torch.softmax(h * 2, -1) - 0.2),
    "padded": lambda h: F.relu(F.pad(h, (1, 2), value=0.5) - 0.2),
    "shortcut to the same": lambda h: F.relu(F.relu(h - 0.2) - h * 0.5),
    "leaky": lambda h: F.leaky_relu(h - 0.2, 0.1),
    "chosen": lambda h: torch.where(torch.arange(6) > 2, F.relu(h - 0.3), h),
}


DENSE_AT_ONCE = {"centred", "subtracted from a number"}
"""Heads whose last operator (mean over all places, rsub) has no rule for windows."""


@pytest.mark.parametrize("name", HEADS)
def test_operators_behind_a_convolution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Net(nn.Conv2d(2, 4, 3, padding=1), HEADS[name]).double()
    x = torch.rand(3, 2, 6, 6, dtype=torch.float64)
    region = bl.Linf(x, 0.1, lower=0.0, upper=1.0)
    net = bl.capture(model, x)
    assert_same_bounds(net, (region,), monkeypatch, knows_windows=name not in DENSE_AT_ONCE)


@pytest.mark.parametrize(
    "name", ["resnet-basic", "densenet", "encoder-post-relu", "vit", "attention", "cnn"]
)
def test_networks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = NETWORKS[name]
    regions = tuple(bl.Linf(x, case.eps) for x in case.inputs(2))
    assert_same_bounds(captured(name)[1], regions, monkeypatch)
