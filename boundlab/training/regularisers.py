"""What makes interval training start well (Shi et al., "Fast Certified Robust Training with Short
Warmup", 2021).

With an interval entering a layer of fan-in n whose weights have standard deviation s, its radius is
multiplied by about n s sqrt(2 / pi) / 2 behind a ReLU that halves it: s = sqrt(2 pi) / n keeps it
as it is. During the warm-up two terms keep bounds from exploding and ReLUs from falling to one
side.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from boundlab.methods.run import Answer
from boundlab.relaxations.interval import Interval
from boundlab.rules.registry import aten

TOLERANCE = 0.5
"""The share from which on a term leaves a layer alone."""


def ibp_initialisation(model: nn.Module, seed: int) -> None:
    """Weights of linear layers and convolutions: normal with standard deviation sqrt(2 pi) /
    fan-in."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            fan_in = module.weight[0].numel()
            with torch.no_grad():
                drawn = torch.randn(module.weight.shape, generator=generator) * (
                    math.sqrt(2 * math.pi) / fan_in
                )
                module.weight.copy_(drawn.to(module.weight))


def preactivations(answer: Answer) -> list[Interval]:
    """What is known of the arguments of all ReLUs, in order."""
    analysis = answer.analysis
    relus = [
        name
        for name in analysis.plan.rules
        if analysis.graph.nodes[name].op in (aten.relu.default, aten.relu_.default)
    ]
    return [analysis.interval(analysis.calls[name].names[0]) for name in relus]


def tightness(layers: list[Interval], radius: Tensor) -> Tensor:
    """mean over layers of relu(t - r_0 / r_i) / t, for the mean radius r_0 of the input and r_i of
    a layer."""
    terms = [
        torch.relu(TOLERANCE - radius / layer.radius.mean().clamp(min=1e-12)) / TOLERANCE
        for layer in layers
    ]
    return torch.stack(terms).mean()


def balance(layers: list[Interval]) -> Tensor:
    """mean over layers of relu(t - a_i) / t + relu(t - b_i) / t, where a_i <= 1 is the ratio
    between the sums of the centres above and below 0, and b_i that between their variances."""
    terms = []
    for layer in layers:
        centre = layer.centre
        sums, spreads = zip(
            *[_moments(torch.relu(side)) for side in (centre, -centre)], strict=True
        )
        ratios = [_ratio(*sums), _ratio(*spreads)]
        terms.append(
            torch.stack([torch.relu(TOLERANCE - ratio) / TOLERANCE for ratio in ratios]).sum()
        )
    return torch.stack(terms).mean()


def _moments(part: Tensor) -> tuple[Tensor, Tensor]:
    """The sum and the variance of the positive entries; the others are 0."""
    total, count = part.sum(), (part > 0).sum().clamp(min=1)
    return total, (part * part).sum() / count - (total / count) ** 2


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """The smaller over the larger."""
    return torch.minimum(a, b) / torch.maximum(a, b).clamp(min=1e-12)
