"""The networks on which bound methods are timed, and the question that is asked of each.

Every workload is a network with random weights, an input shape, a radius and a batch for each
method. Costs are given as seconds of the bound computation / seconds of one forward and backward
pass of the same batch, a figure that carries over between machines. ``peer.json`` holds the same
figures of the leading library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

PEER: dict[str, Any] = json.loads((Path(__file__).parent / "peer.json").read_text())["verification"]


def mlp(depth: int, width: int, inputs: int = 784) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def conv_small() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(1568, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip


def conv_wide() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(32, 128, 4, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(8192, 250), nn.ReLU(), nn.Linear(250, 10),
    )  # fmt: skip


def conv_deep() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 8, 4, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 100),
        nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip


class ResNet(nn.Module):
    """Two residual blocks with batch norm, as in the residual nets that verifiers compete on."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(
            nn.Conv2d(3, w, 3, stride=2, padding=1), nn.BatchNorm2d(w), nn.ReLU()
        )
        self.a = nn.Sequential(
            nn.Conv2d(w, 2 * w, 3, stride=2, padding=1),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.Conv2d(2 * w, 2 * w, 3, padding=1),
            nn.BatchNorm2d(2 * w),
        )
        self.sa = nn.Sequential(nn.Conv2d(w, 2 * w, 1, stride=2), nn.BatchNorm2d(2 * w))
        self.b = nn.Sequential(
            nn.Conv2d(2 * w, 2 * w, 3, padding=1),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.Conv2d(2 * w, 2 * w, 3, padding=1),
            nn.BatchNorm2d(2 * w),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(2 * w * 64, 100), nn.ReLU(), nn.Linear(100, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = torch.relu(self.sa(h) + self.a(h))
        h = torch.relu(h + self.b(h))
        return self.head(h)


class Encoder(nn.Module):
    """One encoder layer (4 heads, 64 wide, mean-only normalisation) over 16 tokens."""

    def __init__(self, width: int = 64, heads: int = 4, inner: int = 128, classes: int = 2) -> None:
        super().__init__()
        self.heads, self.dim = heads, width // heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.head = nn.Linear(width, classes)

    def split(self, t: Tensor) -> Tensor:
        return t.reshape(t.shape[0], t.shape[1], self.heads, self.dim).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(layer(x)) for layer in (self.q, self.k, self.v))
        w = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.dim), -1)
        h = x + self.o(torch.matmul(w, v).permute(0, 2, 1, 3).reshape(x.shape))
        h = h - h.mean(-1, keepdim=True)
        h = h + self.down(torch.relu(self.up(h)))
        h = h - h.mean(-1, keepdim=True)
        return self.head(h.mean(1))


@dataclass(frozen=True)
class Workload:
    """A network, the shape of one input, the radius of the ball, the batch for each method."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    eps: float
    batches: dict[str, int]

    def network(self) -> nn.Module:
        """In eval mode, with settled batch-norm statistics."""
        torch.manual_seed(0)
        net = self.make().train()
        with torch.no_grad():
            for _ in range(10):
                net(torch.rand(32, *self.shape))
        return net.eval()

    def batch(self, method: str, classes: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels: those that the figures in peer.json were measured with."""
        generator = torch.Generator().manual_seed(1)
        x = torch.rand(self.batches[method], *self.shape, generator=generator)
        return x, torch.randint(0, classes, (len(x),), generator=generator)


WORKLOADS = {
    "mlp_6x200": Workload(lambda: mlp(6, 200), (1, 28, 28), 0.01, {"ibp": 64, "crown-ibp": 64, "crown": 32, "alpha-crown": 4}),
    "conv_small": Workload(
        conv_small, (1, 28, 28), 0.05,
        {"ibp": 64, "crown-ibp": 64, "crown": 8, "forward+backward": 4, "alpha-crown": 2}
    ),
    "conv_wide": Workload(conv_wide, (3, 32, 32), 2 / 255, {"ibp": 32, "crown-ibp": 32, "crown": 2}),
    "conv_deep": Workload(conv_deep, (3, 32, 32), 2 / 255, {"ibp": 64, "crown-ibp": 64, "crown": 4, "alpha-crown": 1}),
    "resnet": Workload(ResNet, (3, 32, 32), 1 / 255, {"ibp": 32, "crown-ibp": 32, "crown": 2, "alpha-crown": 1}),
    "encoder": Workload(Encoder, (16, 64), 0.01, {"ibp": 16, "crown-ibp": 8, "crown": 1}),
}  # fmt: skip
