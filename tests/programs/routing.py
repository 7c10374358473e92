"""Mixtures of experts, gates, hypernetworks, sets, pairs of inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.programs.program import Program, weights


class Experts(nn.Module):
    """Four linear experts; routing: how their outputs are chosen or mixed."""

    def __init__(self, routing: str) -> None:
        super().__init__()
        self.routing = routing
        self.gate = nn.Linear(4, 4)
        self.experts = nn.ModuleList(nn.Linear(4, 3) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x)
        outputs = torch.stack([torch.relu(expert(x)) for expert in self.experts], 1)
        if self.routing == "one-hot":
            chosen = F.one_hot(scores.argmax(1), 4).to(x.dtype)
            return torch.einsum("be,bec->bc", chosen, outputs)
        if self.routing == "gather":
            index = scores.argmax(1)[:, None, None].expand(-1, 1, 3)
            return outputs.gather(1, index).squeeze(1)
        if self.routing == "where":
            return torch.where(scores[:, :1] > scores[:, 1:2], outputs[:, 0], outputs[:, 1])
        if self.routing == "top-2":
            best, index = scores.topk(2, dim=1)
            kept = torch.full_like(scores, -torch.inf).scatter(1, index, best)
            return (torch.softmax(kept, 1).unsqueeze(2) * outputs).sum(1)
        return (torch.softmax(scores, 1).unsqueeze(2) * outputs).sum(1)


class Gated(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.up, self.down = kind, nn.Linear(4, 12), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "glu":
            return self.down(F.glu(self.up(x), dim=-1))
        gate, value = self.up(x).chunk(2, dim=-1)
        if self.kind == "highway":
            share = torch.sigmoid(gate)
            return self.down(share * torch.tanh(value) + (1 - share) * value)
        active = F.silu(gate) if self.kind == "swiglu" else F.gelu(gate)
        return self.down(active * value)


class Hypernetwork(nn.Module):
    """The weights of the second layer are computed from the input."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.make = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 12))
        self.body = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.body(x))
        kernel = self.make(x).view(-1, 3, 4)
        if self.form == "bmm":
            return torch.bmm(kernel, hidden.unsqueeze(2)).squeeze(2)
        if self.form == "vmap":
            return torch.vmap(F.linear)(hidden, kernel)
        return torch.baddbmm(torch.zeros(1, 1, 1), kernel, hidden.unsqueeze(2)).squeeze(2)


class Film(nn.Module):
    """A layer whose scale and shift another input decides."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.condition = nn.Conv2d(2, 3, 3, padding=1), nn.Linear(2, 6)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.condition(condition).view(-1, 6, 1, 1).split(3, dim=1)
        return torch.relu((1 + scale) * self.body(x) + shift).mean((2, 3))


class DeepSet(nn.Module):
    def __init__(self, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.inner = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4))
        self.outer = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        points = self.inner(x)
        if self.pooling == "max":
            return self.outer(points.max(dim=1).values)
        if self.pooling == "mean":
            return self.outer(points.mean(1))
        if self.pooling == "masked":
            mask = torch.tensor([1.0, 1.0, 0.0, 1.0])[None, :, None]
            return self.outer((points * mask).sum(1) / mask.sum(1))
        if self.pooling == "logsumexp":
            return self.outer(torch.logsumexp(points, 1))
        return self.outer(points.sum(1))


class Siamese(nn.Module):
    def __init__(self, compare: str) -> None:
        super().__init__()
        self.compare = compare
        self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = self.body(x), self.body(y)
        if self.compare == "cosine":
            return F.cosine_similarity(a, b, dim=1)
        if self.compare == "distance":
            return F.pairwise_distance(a, b)
        if self.compare == "l1":
            return (a - b).abs().sum(1)
        return F.triplet_margin_loss(a, b, b.flip(1), reduction="none")


class Prototypes(nn.Module):
    """Distances of an embedding to fixed prototypes, as class scores."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.body = form, nn.Linear(4, 3)
        self.register_buffer("prototypes", weights(5, 3, scale=2.0))

    def forward(self, x: Tensor) -> Tensor:
        z = self.body(x)
        if self.form == "cdist":
            return -torch.cdist(z, self.prototypes)
        if self.form == "rbf":
            return torch.exp(-(z.unsqueeze(1) - self.prototypes).square().sum(2))
        return F.normalize(z, dim=1) @ F.normalize(self.prototypes, dim=1).T


def other(batch: int) -> Tensor:
    return torch.linspace(-1, 1, batch * 4).view(batch, 4)


PROGRAMS = {
    "experts-soft": Program(lambda: Experts("soft"), ((4,),)),
    "experts-one-hot": Program(lambda: Experts("one-hot"), ((4,),)),
    "experts-gather": Program(lambda: Experts("gather"), ((4,),)),
    "experts-where": Program(lambda: Experts("where"), ((4,),)),
    "experts-top-2": Program(lambda: Experts("top-2"), ((4,),), refused="aten.scatter"),
    "gate-glu": Program(lambda: Gated("glu"), ((4,),)),
    "gate-swiglu": Program(lambda: Gated("swiglu"), ((4,),)),
    "gate-geglu": Program(lambda: Gated("geglu"), ((4,),)),
    "gate-highway": Program(lambda: Gated("highway"), ((4,),)),
    "hypernetwork-bmm": Program(lambda: Hypernetwork("bmm"), ((3,),)),
    "hypernetwork-vmap": Program(lambda: Hypernetwork("vmap"), ((3,),)),
    "hypernetwork-baddbmm": Program(lambda: Hypernetwork("baddbmm"), ((3,),)),
    "film": Program(Film, ((2, 4, 4), (2,))),
    "set-sum": Program(lambda: DeepSet("sum"), ((4, 3),)),
    "set-max": Program(lambda: DeepSet("max"), ((4, 3),)),
    "set-mean": Program(lambda: DeepSet("mean"), ((4, 3),)),
    "set-masked": Program(lambda: DeepSet("masked"), ((4, 3),)),
    "set-logsumexp": Program(lambda: DeepSet("logsumexp"), ((4, 3),)),
    "siamese-cosine": Program(lambda: Siamese("cosine"), ((4,),), given=(other,)),
    "siamese-distance": Program(lambda: Siamese("distance"), ((4,), (4,))),
    "siamese-l1": Program(lambda: Siamese("l1"), ((4,), (4,))),
    "siamese-triplet": Program(lambda: Siamese("triplet"), ((4,),), given=(other,)),
    "prototypes-cdist": Program(lambda: Prototypes("cdist"), ((4,),)),
    "prototypes-rbf": Program(lambda: Prototypes("rbf"), ((4,),)),
    "prototypes-cosine": Program(lambda: Prototypes("cosine"), ((4,),)),
}
