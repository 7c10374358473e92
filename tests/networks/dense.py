"""Fully connected networks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.networks.case import NetworkCase


def perceptron(inputs: int = 3, outputs: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 4), nn.ReLU(), nn.Linear(4, outputs))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 12),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(12, 10),
        nn.LeakyReLU(0.1),
        nn.Linear(10, 5),
    )


def activations_mlp() -> nn.Module:
    """One hidden layer for each of many activations."""
    kinds = [
        nn.Tanh(),
        nn.Sigmoid(),
        nn.ELU(),
        nn.GELU(),
        nn.SiLU(),
        nn.Softplus(),
        nn.Mish(),
        nn.Hardtanh(),
        nn.SELU(),
        nn.PReLU(6),
        nn.CELU(),
    ]
    layers: list[nn.Module] = []
    for kind in kinds:
        layers += [nn.Linear(6, 6), kind]
    return nn.Sequential(*layers, nn.Linear(6, 4))


class Highway(nn.Module):
    def __init__(self, width: int = 6, depth: int = 2) -> None:
        super().__init__()
        self.carry = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.change = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        for gate, change in zip(self.carry, self.change, strict=True):
            t = torch.sigmoid(gate(x))
            x = t * torch.relu(change(x)) + (1 - t) * x
        return self.head(x)


class GatedLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 16), nn.Linear(8, 12), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.glu(self.first(x))
        a, b = self.second(x).chunk(2, dim=-1)
        return self.head(F.silu(a) * b)


class Maxout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 24), nn.Linear(8, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).view(x.size(0), 8, 3).max(dim=2)[0]
        return self.second(x).view(-1, 4, 3).amax(-1)


class Lyapunov(nn.Module):
    """V(x) = x^T P x + a learned part, with P = L L^T + 0.1 I."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.randn(width, width) / width)
        self.net = nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        p = self.factor @ self.factor.T + 0.1 * torch.eye(self.factor.shape[0])
        quadratic = (x @ p * x).sum(-1, keepdim=True)
        shifted = self.net(x) - self.net(torch.zeros_like(x))
        return quadratic + shifted.abs()


class Quadratic(nn.Module):
    """x^T P x through matrix products of the state with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("p", torch.tensor([[2.0, 0.5], [0.5, 1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        column = x.unsqueeze(-1)
        return (column.transpose(1, 2) @ self.p @ column).flatten(1)


class RadialBasis(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(6, 4))
        self.log_width = nn.Parameter(torch.zeros(6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        squared = (x.unsqueeze(1) - self.centres).pow(2).sum(-1)
        return self.head(torch.exp(-self.log_width.exp() * squared))


class KolmogorovArnold(nn.Module):
    """Edges carry learned functions: a SiLU and Gaussian bumps on a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", torch.linspace(-1, 1, 5))
        self.base, self.spline, self.out = nn.Linear(4, 6), nn.Linear(20, 6), nn.Linear(30, 2)

    def forward(self, x: Tensor) -> Tensor:
        bumps = torch.exp(-(((x[..., None] - self.grid) / 0.5) ** 2))
        x = self.base(F.silu(x)) + self.spline(bumps.flatten(-2))
        bumps = torch.exp(-(((x[..., None] - self.grid) / 0.5) ** 2))
        return self.out(bumps.flatten(-2))


class Sine(nn.Module):
    """A SIREN, as for partial differential equations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 10), nn.Linear(10, 10)])
        self.out = nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sin(3.0 * layer(x))
        return self.out(x)


class DeepONet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
        self.trunk = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh())
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, u: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("bi,bi->b", self.branch(u), self.trunk(y)).unsqueeze(1) + self.bias


class Pendulum(nn.Module):
    """A closed loop: a tanh policy swings a pendulum for some steps."""

    def __init__(self, steps: int = 4) -> None:
        super().__init__()
        self.steps = steps
        self.policy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1), nn.Tanh())

    def forward(self, state: Tensor) -> Tensor:
        angle, speed = state[:, 0], state[:, 1]
        for _ in range(self.steps):
            observation = torch.stack([torch.cos(angle), torch.sin(angle), speed], dim=1)
            torque = 2.0 * self.policy(observation).squeeze(1)
            speed = (speed + 0.05 * (15.0 * torch.sin(angle) + 3.0 * torque)).clamp(-8, 8)
            angle = angle + 0.05 * speed
        return torch.stack([angle, speed], dim=-1)


class Normalised(nn.Module):
    """Features and outputs scaled to [0, 1] by their own minimum and maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.net(x)
        low, high = y.min(dim=1, keepdim=True).values, y.max(dim=1, keepdim=True).values
        return (y - low) / (high - low + 1.0)


class Standardised(nn.Module):
    """A head on features divided by their own norm and standard deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 0.5)
        return self.head(F.normalize(x + 1.0, dim=-1))


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = parametrizations.spectral_norm(nn.Linear(5, 8))
        self.conv = parametrizations.spectral_norm(nn.Conv1d(1, 2, 3, padding=1))
        self.head = parametrizations.weight_norm(nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        return self.head(torch.relu(self.conv(x.unsqueeze(1))).flatten(1))


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return F.cosine_similarity(self.embed(a) + 1.0, self.embed(b) + 1.0, dim=1)


class TripletDistance(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, anchor: Tensor, near: Tensor, far: Tensor) -> Tensor:
        a, n, f = self.embed(anchor), self.embed(near), self.embed(far)
        return torch.relu(torch.linalg.norm(a - n, dim=-1) - F.pairwise_distance(a, f) + 1.0)


NETWORKS: dict[str, NetworkCase] = {
    "mlp": NetworkCase(mlp, ((6,),), 0.1),
    "mlp-float64": NetworkCase(mlp, ((6,),), 0.1, torch.float64),
    "activations": NetworkCase(activations_mlp, ((6,),), 0.1),
    "highway": NetworkCase(Highway, ((6,),), 0.1),
    "glu": NetworkCase(GatedLinear, ((6,),), 0.1),
    "maxout": NetworkCase(Maxout, ((5,),), 0.1),
    "lyapunov": NetworkCase(Lyapunov, ((4,),), 0.1),
    "quadratic": NetworkCase(Quadratic, ((2,),), 0.2),
    "rbf": NetworkCase(RadialBasis, ((4,),), 0.1),
    "kan": NetworkCase(KolmogorovArnold, ((4,),), 0.05),
    "sine": NetworkCase(Sine, ((2,),), 0.1),
    "deeponet": NetworkCase(DeepONet, ((6,), (2,)), 0.1),
    "pendulum": NetworkCase(Pendulum, ((2,),), 0.05),
    "normalised": NetworkCase(Normalised, ((5,),), 0.05),
    "standardised": NetworkCase(Standardised, ((5,),), 0.02),
    "spectral": NetworkCase(Spectral, ((5,),), 0.1),
    "siamese": NetworkCase(Siamese, ((5,), (5,)), 0.02),
    "triplet": NetworkCase(TripletDistance, ((5,), (5,), (5,)), 0.05),
}
