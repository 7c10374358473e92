"""Small networks for the tests of several rooms."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    first = [
        nn.Conv2d(2, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
    ]
    return nn.Sequential(*first, nn.Linear(6 * 64, 20), nn.ReLU(), nn.Linear(20, 4))


def small_cnn(
    classes: int = 5, norm: bool = True, scale: float = 1.0, seed: int = 0
) -> nn.Sequential:
    torch.manual_seed(seed)
    middle = [nn.BatchNorm2d(4)] if norm else []
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        *middle,
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 9, 12),
        nn.ReLU(),
        nn.Linear(12, classes),
    ).double()
    with torch.no_grad():
        model[-1].weight.mul_(scale)
    return model


def image_batch(seed: int, classes: int, count: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, 6, 6, dtype=torch.float64, generator=generator)
    return x, torch.randint(0, classes, (count,), generator=generator)


def perceptron(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
