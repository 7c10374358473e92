"""Small networks whose weights are perturbed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl


class Encoder(nn.Module):
    """One layer of attention and feed-forward over four tokens, with layer norm, and a classifier
    of the mean token."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))
        self.norm, self.up, self.down, self.out = (
            nn.LayerNorm(4),
            nn.Linear(4, 6),
            nn.Linear(6, 4),
            nn.Linear(4, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 2
        x = self.norm(x + scores.softmax(-1) @ self.value(x))
        return self.out((x + self.down(F.relu(self.up(x)))).mean(1))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def cnn() -> nn.Module:
    layers = [
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Conv2d(3, 4, 2, groups=1),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (6,)),
    "cnn": (cnn, (1, 6, 6)),
    "encoder": (Encoder, (4, 4)),
}


def prepared(name: str, seed: int = 0, batch: int = 5) -> tuple[nn.Module, bl.Net, Tensor, Tensor]:
    torch.manual_seed(seed)
    make, shape = MODELS[name]
    model = make().double().eval()
    x, y = torch.rand(batch, *shape, dtype=torch.float64), torch.randint(0, 3, (batch,))
    return model, bl.capture(model, x), x, y
