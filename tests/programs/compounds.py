"""Programs that put several ideas together: loops with memory, routing by rank, spectra in two
dimensions, normalised graphs, attention that balances itself."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.programs.program import Program, weights


def integrating_loop(x: Tensor) -> Tensor:
    """A plant under a controller with an integral part that stops at its limits."""
    state, total = x, torch.zeros_like(x)
    for _ in range(3):
        total = torch.clamp(total + 0.5 * state, -0.6, 0.6)
        action = torch.clamp(-1.2 * state - 0.8 * total, -1.0, 1.0)
        state = 0.9 * state + 0.2 * action + 0.05 * torch.sin(state)
    return torch.cat([state, total], 1)


def leapfrog(x: Tensor) -> Tensor:
    """A spring that hardens, and its energy, by a symplectic step."""
    place, speed = x.chunk(2, 1)
    for _ in range(2):
        speed = speed - 0.05 * (place + place**3)
        place = place + 0.1 * speed
        speed = speed - 0.05 * (place + place**3)
    return torch.cat([place, speed, 0.5 * speed**2 + 0.5 * place**2 + 0.25 * place**4], 1)


class RankedExperts(nn.Module):
    """The outputs of the two best experts, weighed by their scores."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 3), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        share, chosen = torch.topk(torch.softmax(self.gate(x), -1), 2, dim=-1)
        outputs = torch.tanh(self.experts(x)).view(-1, 3, 2)
        picked = torch.gather(outputs, 1, chosen.unsqueeze(-1).expand(-1, -1, 2))
        return (picked * (share / share.sum(-1, keepdim=True)).unsqueeze(-1)).sum(1)


class SoftTree(nn.Module):
    """Leaves weighed by the products of the decisions on the way to them."""

    def __init__(self) -> None:
        super().__init__()
        self.decide, self.leaves = nn.Linear(4, 3), nn.Parameter(weights(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        root, left, right = torch.sigmoid(self.decide(x)).unbind(1)
        ways = [root * left, root * (1 - left), (1 - root) * right, (1 - root) * (1 - right)]
        return torch.stack(ways, 1) @ self.leaves


class Likelihood(nn.Module):
    """The logarithm of a density: an affine flow in front of a normal distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.conditioner = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 4))

    def forward(self, x: Tensor) -> Tensor:
        kept, moved = x.chunk(2, 1)
        log_scale, shift = self.conditioner(kept).chunk(2, 1)
        log_scale = 0.5 * torch.tanh(log_scale)
        z = torch.cat([kept, (moved - shift) * torch.exp(-log_scale)], 1)
        normal = -0.5 * (z**2 + math.log(2 * math.pi)).sum(1)
        return normal - log_scale.sum(1)


class LearnedGraph(nn.Module):
    """Edges are scores of pairs of nodes, normalised by the degrees on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Linear(2, 3), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        edges = torch.sigmoid(h @ h.transpose(1, 2))
        root = edges.sum(-1).rsqrt()
        return torch.relu(self.out(root.unsqueeze(-1) * edges * root.unsqueeze(-2) @ x))


CYCLE = (torch.eye(4).roll(1, 0) + 0.5 * torch.eye(4)).to_sparse()


def sparse_around(x: Tensor) -> Tensor:
    """A sparse matrix that no module holds."""
    return CYCLE @ torch.relu(x)


class SparseGraph(nn.Module):
    """Neighbours by a sparse matrix on the left of a graph, or on the right of a batch."""

    def __init__(self, side: str) -> None:
        super().__init__()
        self.side, self.layer = side, nn.Linear(3, 3)
        self.register_buffer("S", CYCLE)

    def forward(self, x: Tensor) -> Tensor:
        if self.side == "left":
            return self.S @ torch.relu(self.layer(x))
        if self.side == "vector":
            return self.S.mv(torch.relu(x))
        return torch.relu(x) @ self.S.t()


class SpectralImage(nn.Module):
    """The lowest frequencies of an image, each times a complex number, beside a local part."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(weights(2, 2, 2))
        self.local = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x)
        low = spectrum[..., :2, :2] * torch.view_as_complex(self.scale)
        padded = F.pad(low, (0, spectrum.shape[-1] - 2, 0, spectrum.shape[-2] - 2))
        return torch.relu(torch.fft.irfft2(padded, s=x.shape[-2:]) + self.local(x))


def soft_ranks(x: Tensor) -> Tensor:
    """How many others each entry exceeds, smoothly, and the entries weighed by it."""
    ranks = torch.sigmoid(4 * (x.unsqueeze(2) - x.unsqueeze(1))).sum(2) - 0.5
    return torch.cat([ranks, (x * torch.softmax(-ranks, 1)).sum(1, keepdim=True)], 1)


def earth_mover(x: Tensor, y: Tensor) -> Tensor:
    """The distance of two samples on a line: of their sorted entries."""
    return (torch.sort(x, 1).values - torch.sort(y, 1).values).abs().mean(1)


class HardestNegative(nn.Module):
    """The loss of the nearest anchor of another class, as an output."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 3)
        self.register_buffer("anchors", weights(5, 3, scale=1.0))
        self.register_buffer("own", torch.tensor([True, True, False, False, False]))

    def forward(self, x: Tensor) -> Tensor:
        far = (self.embed(x).unsqueeze(1) - self.anchors).square().sum(2)
        nearest = far.masked_fill(self.own, torch.inf).amin(1)
        return torch.relu(far.masked_fill(~self.own, -torch.inf).amax(1) - nearest + 0.5)


def dynamic_quantisation(x: Tensor) -> Tensor:
    """Steps as wide as the largest entry of the sample asks for."""
    step = x.abs().amax(1, keepdim=True) / 7
    return torch.clamp(torch.round(x / step), -8, 7) * step


class BalancedAttention(nn.Module):
    """Scores whose rows and columns are normalised in turn (Sinkhorn)."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Linear(3, 9)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x).chunk(3, -1)
        scores = query @ key.transpose(1, 2) / math.sqrt(3)
        for dim in (-1, -2, -1):
            scores = scores - torch.logsumexp(scores, dim, keepdim=True)
        return scores.exp() @ value


class NearAttention(nn.Module):
    """Attention to earlier neighbours alone; a token without any gets 0 in place of NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Linear(3, 9)
        place = torch.arange(4)
        apart = place[:, None] - place
        self.register_buffer("hidden", (apart < 1) | (apart > 2))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x).chunk(3, -1)
        scores = (query @ key.transpose(1, 2)).masked_fill(self.hidden, -torch.inf)
        return torch.softmax(scores, -1).masked_fill(self.hidden, 0.0) @ value


class Mahalanobis(nn.Module):
    """The length of x in a metric that a triangular factor gives."""

    def __init__(self) -> None:
        super().__init__()
        self.factor, self.centre = nn.Parameter(weights(4, 4)), nn.Parameter(weights(4))

    def forward(self, x: Tensor) -> Tensor:
        factor = torch.tril(self.factor, -1) + torch.diag(F.softplus(self.factor.diagonal()))
        apart = x - self.centre
        form = torch.einsum("bi,ij,bj->b", apart, factor @ factor.T, apart)
        return torch.sqrt(form + 1e-3)


class Mixed(nn.Module):
    """Layers in a shorter type, by autocast inside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = torch.relu(self.first(x))
        return self.second(hidden.float())


PROGRAMS = {
    "loop-integrator": Program(lambda: integrating_loop, ((2,),)),
    "loop-leapfrog": Program(lambda: leapfrog, ((4,),)),
    "experts-ranked": Program(RankedExperts, ((4,),)),
    "gate-tree": Program(SoftTree, ((4,),)),
    "flow-likelihood": Program(Likelihood, ((4,),)),
    "graph-learned": Program(LearnedGraph, ((4, 2),)),
    "graph-sparse-left": Program(lambda: SparseGraph("left"), ((4, 3),), batched=False),
    "graph-sparse-around": Program(
        lambda: sparse_around, ((4, 3),), batched=False, refused="register_buffer"
    ),
    "graph-sparse-vector": Program(lambda: SparseGraph("vector"), ((4,),), batched=False),
    "graph-sparse-right": Program(lambda: SparseGraph("right"), ((4,),)),
    "spectrum-image": Program(SpectralImage, ((1, 4, 4),)),
    "order-soft-ranks": Program(lambda: soft_ranks, ((4,),)),
    "loss-earth-mover": Program(lambda: earth_mover, ((4,), (4,))),
    "loss-hardest-negative": Program(HardestNegative, ((4,),)),
    "quantised-dynamic": Program(lambda: dynamic_quantisation, ((4,),), low=0.5),
    "attention-balanced": Program(BalancedAttention, ((3, 3),)),
    "attention-near": Program(NearAttention, ((4, 3),)),
    "quadratic-mahalanobis": Program(Mahalanobis, ((4,),)),
    "autocast": Program(Mixed, ((4,),)),
}
