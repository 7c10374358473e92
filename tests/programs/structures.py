"""How models take and give their tensors: dictionaries, dataclasses, keywords, scripts."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.programs.program import Program, weights


@dataclass
class Detection:
    scores: Tensor
    boxes: Tensor


Pair = namedtuple("Pair", ["mean", "deviation"])


class Shaped(nn.Module):
    """Two heads, returned in some structure."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.body = form, nn.Linear(4, 5)
        self.left, self.right = nn.Linear(5, 3), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Any:
        hidden = torch.relu(self.body(x))
        a, b = self.left(hidden), self.right(hidden).sigmoid()
        made = {
            "dict": lambda: {"scores": a, "parts": {"boxes": b}},
            "nested": lambda: (a, [b, (hidden,)]),
            "dataclass": lambda: Detection(a, b),
            "named": lambda: Pair(a, b),
            "ordered": lambda: OrderedDict(scores=a, boxes=b),
            "with-constants": lambda: (a, None, 3, torch.ones(2)),
            "with-integers": lambda: (a, a.argmax(1)),
            "the-input": lambda: (x, a),
        }
        return made[self.form]()


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x: Tensor, *, scale: Tensor | None = None, shift: Tensor | None = None):
        y = self.body(x)
        if scale is not None:
            y = y * scale
        if shift is not None:
            y = y + shift
        return torch.relu(y)


class FromDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        batch = {"x": x, "other": other}
        return torch.tanh(self.body(batch["x"])) * batch["other"]


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(plain())


def traced() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(plain(), torch.zeros(2, 4))


def compiled() -> nn.Module:
    return torch.compile(plain(), backend="eager")


class Looped(nn.Module):
    """Python around tensors: loops over shapes, lists, early decisions, asserts."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(k): nn.Linear(4, 4) for k in range(3)})

    def forward(self, x: Tensor) -> Tensor:
        assert x.dim() == 2 and x.shape[1] == 4
        seen = []
        for name, layer in self.layers.items():
            x = layer(x) + (x if int(name) % 2 else 0)
            seen.append(torch.relu(x))
        return torch.stack(seen).mean(0)


class Hooked(nn.Module):
    """A forward hook changes what a layer gives."""

    def __init__(self) -> None:
        super().__init__()
        self.body = plain()
        self.body[0].register_forward_hook(lambda module, inputs, output: output * 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Halved(nn.Module):
    """Casts inside a model."""

    def __init__(self) -> None:
        super().__init__()
        self.body = plain()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.double().float()).double()


class Fixed(nn.Module):
    """Constants without a batch dimension, concatenated with what has one."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(weights(1, 1, 3))
        self.body = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return self.body(tokens)[:, 0] + self.body(tokens).mean(1)


class DataDependent(nn.Module):
    """A branch on a value: cannot be one graph."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return torch.relu(x)
        return x


class Conditional(nn.Module):
    """The same with torch.cond."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, torch.relu, torch.tanh, (x,))


def other(batch: int) -> Tensor:
    return torch.linspace(0.5, 1.5, batch * 3).view(batch, 3)


FORMS = (
    "dict", "nested", "named", "ordered", "with-constants", "with-integers", "the-input",
    "dataclass",
)  # fmt: skip
PROGRAMS = {
    **{f"output-{form}": Program(lambda form=form: Shaped(form), ((4,),)) for form in FORMS},
    "keywords": Program(Keywords, ((4,),), named={"shift": other, "scale": other}),
    "two-inputs": Program(FromDict, ((4,),), given=(other,)),
    "scripted": Program(scripted, ((4,),), refused="capture the original module"),
    "traced": Program(traced, ((4,),)),
    "compiled": Program(compiled, ((4,),)),
    "looped": Program(Looped, ((4,),)),
    "hooked": Program(Hooked, ((4,),)),
    "casts": Program(Halved, ((4,),)),
    "fixed-token": Program(Fixed, ((2, 3),)),
    "data-dependent": Program(DataDependent, ((4,),), refused="control flow"),
    "conditional": Program(Conditional, ((4,),), refused="aten.sum"),
}
