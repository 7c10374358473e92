"""Ways of writing a model: in place, by choices, with views, functional, shared modules, several
outputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks.case import IMAGE, NetworkCase


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y += 0.5
        F.relu_(y)
        y = y.clone()
        y[:, 1] = x[:, 0] * 2
        y[:, 2:4] *= -1.0
        y[:, 4].add_(x[:, 1])
        z = torch.zeros_like(y)
        z[:, ::2] = y[:, 1::2]
        z.sub_(y).clamp_(-3, 3)
        return self.out(z)


class Choices(nn.Module):
    """torch.where, clamp, masks, sign, comparisons."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 6)
        self.register_buffer("mask", torch.tensor([1.0, 0, 1, 1, 0, 1]))
        self.register_buffer("keep", torch.tensor([True, True, False, True, False, True]))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x) * self.mask
        y = torch.where(y > 0, y, 0.2 * y)
        y = torch.where(self.keep, y, y.clamp(min=-0.1, max=0.1))
        y = y.masked_fill(~self.keep, 0.7)
        gate = (x[:, :1] > 0.1).float()
        return torch.minimum(y, torch.tensor(0.4)) * gate + torch.maximum(y, -y) * (1 - gate)


class Rearranged(nn.Module):
    """Views, permutes, rolls, unfolds: patches cut, shuffled and put together again."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(8, 8), nn.Linear(72, 3)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, 4 * c)
        x = torch.relu(self.fc(x)).roll(shifts=1, dims=1).flip(-1)
        x = (
            x.view(b, h // 2, w // 2, c, 2, 2)
            .permute(0, 3, 1, 4, 2, 5)
            .contiguous()
            .view(b, c, h, w)
        )
        x = x.unfold(2, 3, 3).unfold(3, 3, 3).flatten(1)
        return self.head(torch.stack(x.split(36, dim=1), dim=-1).flatten(1))


class FunctionalStyle(nn.Module):
    """Weights as bare parameters and buffers, everything else from torch.nn.functional."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(8, 5) / 3), nn.Parameter(torch.zeros(8))
        self.w2 = nn.Parameter(torch.randn(8, 3) / 3)
        self.register_buffer("mean", torch.linspace(-0.2, 0.2, 5))
        self.register_buffer("std", torch.linspace(0.5, 1.5, 5))
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.std
        x = F.softplus(F.linear(x, self.w1, self.b1), beta=2)
        x = F.dropout(x, 0.5, training=self.training)
        return self.scale * torch.addmm(torch.zeros(3), x, self.w2) - x.mean(1, keepdim=True) / 2


class Shared(nn.Module):
    """One module on two paths, one tensor read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(5, 5), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.relu(self.fc(x))
        b = torch.relu(self.fc(a - x))
        return self.out(torch.cat([a * b, b + a], dim=-1))


class Several(nn.Module):
    """A tuple with a nested list, and outputs of different shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.heads = nn.Linear(5, 6), nn.ModuleList([nn.Linear(6, 2), nn.Linear(6, 3)])

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        h = torch.relu(self.body(x))
        return h.sum(1), [head(h) for head in self.heads]


class Probabilities(nn.Module):
    def __init__(self, log: bool) -> None:
        super().__init__()
        self.body, self.log = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4)), log

    def forward(self, x: Tensor) -> Tensor:
        return (
            F.log_softmax(self.body(x), dim=1) if self.log else torch.softmax(self.body(x), dim=1)
        )


class MixtureOfExperts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts, self.gate = (
            nn.ModuleList(
                nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)) for _ in range(3)
            ),
            nn.Linear(5, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (self.gate(x).softmax(-1).unsqueeze(-1) * outputs).sum(1)


class SpatialTransform(nn.Module):
    """Coordinate channels, a polynomial, products and quotients of features."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat(
            [x, x**2, x[:, :1] * x[:, 1:], (x[:, :1] + 3.0).log(), torch.sqrt(x[:, 1:] + 2.0)],
            dim=1,
        )[:, 2:6]
        y = self.fc(x)
        return self.out(y / (1 + y.abs())) / (2.0 + torch.tanh(x[:, :1]) ** 3)


NETWORKS: dict[str, NetworkCase] = {
    "in-place": NetworkCase(InPlace, ((5,),), 0.1),
    "choices": NetworkCase(Choices, ((5,),), 0.2),
    "rearranged": NetworkCase(Rearranged, (IMAGE,), 0.05),
    "functional": NetworkCase(FunctionalStyle, ((5,),), 0.1),
    "shared": NetworkCase(Shared, ((5,),), 0.1),
    "several": NetworkCase(Several, ((5,),), 0.1),
    "softmax": NetworkCase(lambda: Probabilities(False), ((5,),), 0.1),
    "log-softmax": NetworkCase(lambda: Probabilities(True), ((5,),), 0.1),
    "experts": NetworkCase(MixtureOfExperts, ((5,),), 0.1),
    "rational": NetworkCase(SpatialTransform, ((2,),), 0.1),
}
