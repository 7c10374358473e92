"""A user's own model and data, as they are named on the command line."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.helpers.data import images


class Residual(nn.Module):
    """A convolution with batch norm around which values pass."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


def net() -> nn.Module:
    """A residual network for three classes of 1 x 8 x 8."""
    torch.manual_seed(0)
    first = [nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), Residual(4)]
    return nn.Sequential(*first, nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3))


def two_classes() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))


def points_net() -> nn.Module:
    """For two classes of points, without a single ReLU."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


def points(count: int = 96) -> tuple[Tensor, Tensor]:
    """Two classes of points around (-1, -1) and (1, 1), float32 (count, 2)."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % 2
    return 0.2 * torch.randn(count, 2, generator=generator) + (2.0 * labels - 1)[:, None], labels


def points_data() -> tuple[tuple[Tensor, Tensor], TensorDataset]:
    """Points for training as a pair, for tests as a data set."""
    return points(), TensorDataset(*points(24))


def stripes_data() -> list[tuple[Tensor, Tensor]]:
    data = images()
    return [(data.images, data.labels), (data.images[:30], data.labels[:30])]


def three() -> tuple[int, int, int]:
    return 1, 2, 3


def odd_parts() -> tuple[int, int]:
    return 1, 2


number = 3
