"""Normalising flows, energies, densities, survival models, splines."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.programs.program import Program, weights


class Coupling(nn.Module):
    """Two coupling layers; the values and the logarithm of the determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 4)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_det = x.new_zeros(x.shape[0])
        for net in self.nets:
            kept, moved = x.chunk(2, dim=1)
            scale, shift = net(kept).chunk(2, dim=1)
            scale = torch.tanh(scale)
            x = torch.cat([moved * torch.exp(scale) + shift, kept], 1)
            log_det = log_det + scale.sum(1)
        return x, log_det


class AffineFlow(nn.Module):
    """A triangular map with a density under the standard normal as output."""

    def __init__(self) -> None:
        super().__init__()
        self.factor, self.shift = nn.Parameter(weights(3, 3)), nn.Parameter(weights(3))

    def forward(self, x: Tensor) -> Tensor:
        L = torch.tril(self.factor, -1) + torch.diag(torch.exp(torch.diagonal(self.factor)))
        z = torch.linalg.solve_triangular(L, (x - self.shift).T, upper=False).T
        log_det = torch.diagonal(L).log().sum()
        return -0.5 * (z**2).sum(1) - 1.5 * math.log(2 * math.pi) - log_det


class PlanarFlow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Parameter(weights(3)), nn.Parameter(weights(3))
        self.b = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = torch.tanh(x @ self.w + self.b)
        psi = (1 - inner.square()).unsqueeze(1) * self.w
        return x + inner.unsqueeze(1) * self.u, torch.log(torch.abs(1 + psi @ self.u))


class Autoregressive(nn.Module):
    """Masked layers: each element depends on those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("mask", torch.tril(torch.ones(4, 4), -1))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.elu(F.linear(x, self.first.weight * self.mask, self.first.bias))
        mean = F.linear(hidden, self.second.weight * (self.mask + torch.eye(4)), self.second.bias)
        return (x - mean) * torch.exp(-0.5 * F.softplus(mean))


class Energy(nn.Module):
    """A restricted Boltzmann machine's free energy."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.visible = nn.Linear(4, 6), nn.Parameter(weights(4))

    def forward(self, x: Tensor) -> Tensor:
        return -(x * self.visible).sum(1) - F.softplus(self.hidden(x)).sum(1)


class Mixture(nn.Module):
    """The logarithm of a mixture of Gaussians."""

    def __init__(self) -> None:
        super().__init__()
        self.means, self.logits = nn.Parameter(weights(3, 2)), nn.Parameter(weights(3))

    def forward(self, x: Tensor) -> Tensor:
        exponent = -0.5 * (x[:, None, :] - self.means).pow(2).sum(-1)
        return torch.logsumexp(exponent + torch.log_softmax(self.logits, 0), dim=1)


class Hopfield(nn.Module):
    """Retrieval of stored patterns by a softmax with a temperature."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.register_buffer("patterns", weights(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x @ self.patterns.T / self.temperature, -1) @ self.patterns


class Survival(nn.Module):
    """Hazards at five times, the chance to live on at each."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.hazard = form, nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "cumulative":
            return torch.exp(-torch.cumsum(F.softplus(self.hazard(x)), 1))
        if self.form == "product":
            return torch.cumprod(1 - torch.sigmoid(self.hazard(x)), 1)
        if self.form == "logarithms":
            return torch.cumsum(F.logsigmoid(-self.hazard(x)), 1).exp()
        return torch.logcumsumexp(self.hazard(x), 1)


class Spline(nn.Module):
    """A piecewise-linear function of each element with its knots in a table."""

    def __init__(self, search: str) -> None:
        super().__init__()
        self.search = search
        self.register_buffer("knots", torch.tensor([-1.5, -0.7, 0.1, 0.6, 1.5]))
        self.values = nn.Parameter(weights(5, scale=1.0))

    def forward(self, x: Tensor) -> Tensor:
        if self.search == "bucketize":
            i = torch.bucketize(x, self.knots[1:-1])
        elif self.search == "searchsorted":
            i = torch.searchsorted(self.knots[1:-1], x.contiguous())
        else:
            slopes = torch.diff(self.values) / torch.diff(self.knots)
            turns = torch.diff(slopes, prepend=torch.zeros(1))
            return self.values[0] + (F.relu(x.unsqueeze(-1) - self.knots[:-1]) * turns).sum(-1)
        left, right = self.knots[i], self.knots[i + 1]
        share = (x - left) / (right - left)
        return self.values[i] * (1 - share) + self.values[i + 1] * share


class LookupSpline(nn.Module):
    """The table is read by gather, per feature."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(weights(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        place = (x.clamp(-0.99, 0.99) + 1) * 2.5
        i = place.floor().long()
        table = self.table.expand(x.shape[0], -1, -1)
        low = table.gather(2, i.unsqueeze(2)).squeeze(2)
        high = table.gather(2, (i + 1).unsqueeze(2)).squeeze(2)
        return torch.lerp(low, high, place - i)


PROGRAMS = {
    "flow-coupling": Program(Coupling, ((4,),)),
    "flow-affine": Program(AffineFlow, ((3,),)),
    "flow-planar": Program(PlanarFlow, ((3,),)),
    "flow-autoregressive": Program(Autoregressive, ((4,),)),
    "energy-boltzmann": Program(Energy, ((4,),)),
    "energy-mixture": Program(Mixture, ((2,),)),
    "energy-hopfield": Program(lambda: Hopfield(1.0), ((3,),)),
    "energy-hopfield-cold": Program(lambda: Hopfield(0.1), ((3,),)),
    "survival-cumsum": Program(lambda: Survival("cumulative"), ((3,),)),
    "survival-cumprod": Program(lambda: Survival("product"), ((3,),)),
    "survival-logsigmoid": Program(lambda: Survival("logarithms"), ((3,),)),
    "survival-logcumsumexp": Program(
        lambda: Survival("running"), ((3,),), refused="aten.logcumsumexp"
    ),
    "spline-bucketize": Program(lambda: Spline("bucketize"), ((3,),)),
    "spline-searchsorted": Program(lambda: Spline("searchsorted"), ((3,),)),
    "spline-relu": Program(lambda: Spline("relu"), ((3,),)),
    "spline-gather": Program(LookupSpline, ((3,),)),
}
