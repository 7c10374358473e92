"""Normalisation by hand, of values and of weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.programs.program import Program, weights

IMAGE = (4, 3, 3)


class Normalised(nn.Module):
    """A convolution, a norm by hand, a ReLU."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.conv = kind, nn.Conv2d(4, 4, 3, padding=1)
        self.scale = nn.Parameter(1 + weights(4, 1, 1, scale=0.1))

    def norm(self, x: Tensor) -> Tensor:
        if self.kind == "layer":
            mean = x.mean((1, 2, 3), keepdim=True)
            variance = (x - mean).pow(2).mean((1, 2, 3), keepdim=True)
            return (x - mean) / torch.sqrt(variance + 1e-2)
        if self.kind == "layer-var":
            variance, mean = torch.var_mean(x, (1, 2, 3), keepdim=True, correction=0)
            return (x - mean) * torch.rsqrt(variance + 1e-2)
        if self.kind == "layer-std":
            return (x - x.mean((1, 2, 3), keepdim=True)) / (x.std((1, 2, 3), keepdim=True) + 1e-2)
        if self.kind == "group":
            grouped = x.view(-1, 2, 2, 3, 3)
            mean = grouped.mean((2, 3, 4), keepdim=True)
            variance = grouped.var((2, 3, 4), keepdim=True, unbiased=False)
            return ((grouped - mean) / (variance + 1e-2).sqrt()).view(-1, *IMAGE)
        if self.kind == "instance":
            centred = x - x.mean((2, 3), keepdim=True)
            return centred / (centred.square().mean((2, 3), keepdim=True) + 1e-1).sqrt()
        if self.kind == "rms":
            return x * torch.rsqrt(x.square().mean((1, 2, 3), keepdim=True) + 1e-2)
        if self.kind == "unit":
            return x / x.norm(dim=1, keepdim=True).clamp(min=1e-1)
        if self.kind == "module":
            return F.group_norm(F.instance_norm(x, eps=1e-1), 2, eps=1e-1)
        return F.local_response_norm(x, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.scale * self.norm(self.conv(x)))


class StandardisedConv(nn.Conv2d):
    """A convolution with standardised weights, by hand or by torch's batch norm."""

    def __init__(self, form: str) -> None:
        super().__init__(2, 4, 3, padding=1)
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "batch-norm":
            rows = self.weight.reshape(1, 4, -1)
            rows = F.batch_norm(rows, None, None, training=True, momentum=0.0, eps=1e-6)
            return F.conv2d(x, rows.reshape_as(self.weight), self.bias, padding=1)
        mean = self.weight.mean((1, 2, 3), keepdim=True)
        std = self.weight.std((1, 2, 3), keepdim=True)
        return F.conv2d(x, (self.weight - mean) / (std + 1e-5), self.bias, padding=1)


def standardised(form: str) -> nn.Module:
    return nn.Sequential(StandardisedConv(form), nn.GroupNorm(2, 4, eps=1e-2), nn.ReLU())


def parametrised(kind: str) -> nn.Module:
    first, second = nn.Linear(4, 6), nn.Linear(6, 2)
    wrap = {
        "spectral": lambda layer: parametrizations.spectral_norm(layer, n_power_iterations=2),
        "weight": parametrizations.weight_norm,
        "orthogonal": parametrizations.orthogonal,
    }[kind]
    return nn.Sequential(wrap(first), nn.ReLU(), wrap(second))


class Lipschitz(nn.Module):
    """Layers divided by a power iteration of their own, and a group sort."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(weights(6, 4))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        v = torch.ones(4)
        for _ in range(3):
            v = F.normalize(self.weight.T @ (self.weight @ v), dim=0)
        y = F.linear(x, self.weight / torch.linalg.vector_norm(self.weight @ v))
        pairs = y.view(-1, 3, 2)
        return self.head(torch.cat([pairs.amax(2), pairs.amin(2)], 1))


class Whitened(nn.Module):
    """Inputs whitened by statistics in buffers, dropout and identity as in training code."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", weights(4))
        self.register_buffer("deviation", weights(4).abs() + 0.5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.drop, self.body = nn.Dropout(0.5), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return torch.relu(self.body(self.drop((x - self.mean) / self.deviation)))


KINDS = ("layer", "layer-var", "layer-std", "group", "instance", "rms", "unit", "module", "local")
PROGRAMS = {
    **{f"norm-{kind}": Program(lambda kind=kind: Normalised(kind), (IMAGE,)) for kind in KINDS},
    "weights-standardised": Program(lambda: standardised("by-hand"), ((2, 4, 4),)),
    "weights-standardised-bn": Program(lambda: standardised("batch-norm"), ((2, 4, 4),)),
    "weights-spectral": Program(lambda: parametrised("spectral"), ((4,),)),
    "weights-norm": Program(lambda: parametrised("weight"), ((4,),)),
    "weights-orthogonal": Program(lambda: parametrised("orthogonal"), ((4,),)),
    "lipschitz": Program(Lipschitz, ((4,),)),
    "whitened": Program(Whitened, ((4,),)),
}
