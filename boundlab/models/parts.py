"""What several networks are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """(x - mean) / std by channel, for images (batch, channels, height, width), or with another
    number of dims behind the channels. mean, std: one number, or one per channel."""

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        dims: int = 2,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(mean, dtype=dtype).reshape(-1, *[1] * dims))
        self.register_buffer("std", torch.tensor(std, dtype=dtype).reshape(-1, *[1] * dims))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def conv_bn_relu(
    into: int, out: int, kernel: int = 3, stride: int = 1, padding: int = 1, groups: int = 1
) -> list[nn.Module]:
    return [
        nn.Conv2d(into, out, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(),
    ]


def head(
    features: nn.Module, channels: int, size: int, classes: int, hidden: int | None = 512
) -> nn.Sequential:
    """Features, flattened, one hidden linear layer or none, and the classes; what the features give
    is found by trying."""
    with torch.no_grad():
        features.eval()
        width = features(torch.zeros(1, channels, size, size)).numel()
        features.train()
    if hidden is None:
        return nn.Sequential(features, nn.Flatten(), nn.Linear(width, classes))
    return nn.Sequential(
        features, nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes)
    )
