"""Sorting and order statistics, rounding, signs, saturation, choices by masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.programs.program import Program, weights


class Ordered(nn.Module):
    """A layer, and an order statistic of its outputs."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.body = kind, nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        chosen = {
            "sort": lambda: torch.sort(y, dim=1).values,
            "descending": lambda: y.sort(dim=1, descending=True)[0][:, :3],
            "topk": lambda: y.topk(2, dim=1).values,
            "median": lambda: y.median(dim=1).values,
            "nanmedian": lambda: y.nanmedian(dim=1).values,
            "quantile": lambda: torch.quantile(y, 0.3, dim=1),
            "quantiles": lambda: torch.quantile(y, torch.tensor([0.25, 0.75]), dim=1).T,
            "kthvalue": lambda: y.kthvalue(2, dim=1).values,
            "running": lambda: torch.cummax(y, 1).values - torch.cummin(y, 1).values,
            "range": lambda: torch.aminmax(y, dim=1).max - y.amin(1),
            "trimmed": lambda: y.sort(1).values[:, 1:-1].mean(1),
        }
        return chosen[self.kind]()


def sorted_by_first(x: Tensor) -> Tensor:
    """Rows of a table in the order of their first column."""
    order = x[:, :, 0].argsort(dim=1)
    return x.gather(1, order.unsqueeze(2).expand_as(x))


class Quantised(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

    def activation(self, y: Tensor) -> Tensor:
        if self.kind == "fake":
            return torch.fake_quantize_per_tensor_affine(y, 0.1, 0, -8, 7)
        if self.kind == "round":
            return torch.round(y / 0.25).clamp(-4, 3) * 0.25
        if self.kind == "sign":
            return torch.sign(y)
        if self.kind == "straight-through":
            return y + (torch.round(y) - y).detach()
        if self.kind == "where":
            return torch.where(y >= 0, 1.0, -1.0)
        return (y > 0).float()

    def forward(self, x: Tensor) -> Tensor:
        weight = self.second.weight
        if self.kind == "sign":
            weight = weight.sign() * weight.abs().mean()
        return F.linear(self.activation(self.first(x)), weight, self.second.bias)


class FakeQuantisedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.layer.weight
        scale = weight.detach().abs().amax(1) / 7
        zero = torch.zeros(3, dtype=torch.int32)
        q = torch.fake_quantize_per_channel_affine(weight, scale, zero, 0, -8, 7)
        return torch.relu(F.linear(x, q, self.layer.bias))


def saturated(x: Tensor) -> Tensor:
    return F.hardtanh(2 * x) + torch.clamp(x, max=0.3) + torch.clip(x, torch.tensor(-0.2))


def dead_zone(x: Tensor) -> Tensor:
    return F.softshrink(x, 0.2) + F.hardshrink(x, 0.4) + F.threshold(x, 0.1, -0.5)


def masked(x: Tensor) -> Tensor:
    """Masks that do not depend on the values, and one that does."""
    fixed = torch.tensor([True, False, True, False])
    y = x.masked_fill(fixed, 0.0) + torch.where(fixed, x.square(), x.exp())
    return y * (x > 0)


def written(x: Tensor) -> Tensor:
    """In-place writes into a copy."""
    y = x.clone()
    y[:, 1:3] = torch.relu(x[:, :2])
    y[:, 0] += 1
    y[:, -1].mul_(2)
    return y


class Lookup(nn.Module):
    """An embedding of fixed indices is added to the input; another is given by the user."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4)
        self.register_buffer("index", torch.tensor([3, 0, 5]))

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        return torch.tanh(x + self.table(self.index) + self.table(words)).sum(1)


def words(batch: int) -> Tensor:
    return torch.arange(batch * 3).view(batch, 3) % 6


class Tree(nn.Module):
    """A soft decision tree of depth two, and a hard one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.splits, self.leaves = nn.Linear(3, 3), nn.Parameter(weights(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.sigmoid(self.splits(x))
        q = (p > 0.5).to(x.dtype)

        def mix(p: Tensor) -> Tensor:
            root, left, right = p.unbind(1)
            paths = [root * left, root * (1 - left), (1 - root) * right, (1 - root) * (1 - right)]
            return torch.stack(paths, 1) @ self.leaves

        return mix(p), mix(q)


KINDS: dict[str, str | None] = {
    "sort": None,
    "descending": None,
    "topk": None,
    "median": None,
    "nanmedian": "aten.nanmedian",
    "quantile": None,
    "quantiles": None,
    "kthvalue": None,
    "running": "aten.cummax",
    "range": None,
    "trimmed": None,
}
"""Kind -> the operator that has no rule, if there is one."""
PROGRAMS = {
    **{
        f"order-{kind}": Program(lambda kind=kind: Ordered(kind), ((4,),), refused=operator)
        for kind, operator in KINDS.items()
    },
    "order-argsort": Program(lambda: sorted_by_first, ((3, 2),)),
    "quantised-fake": Program(lambda: Quantised("fake"), ((4,),)),
    "quantised-round": Program(lambda: Quantised("round"), ((4,),)),
    "quantised-sign": Program(lambda: Quantised("sign"), ((4,),)),
    "quantised-straight-through": Program(lambda: Quantised("straight-through"), ((4,),)),
    "quantised-where": Program(lambda: Quantised("where"), ((4,),)),
    "quantised-step": Program(lambda: Quantised("step"), ((4,),)),
    "quantised-weights": Program(FakeQuantisedWeights, ((4,),)),
    "saturated": Program(lambda: saturated, ((4,),)),
    "dead-zone": Program(lambda: dead_zone, ((4,),)),
    "masked": Program(lambda: masked, ((4,),)),
    "written": Program(lambda: written, ((4,),)),
    "lookup": Program(Lookup, ((3, 4),), given=(words,)),
    "tree": Program(Tree, ((3,),)),
}
