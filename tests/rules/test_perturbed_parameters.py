"""Operators whose parameters are perturbed, and operators of two perturbed inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import boundlab as bl
from tests.helpers.captures import net_of
from tests.helpers.contract import METHODS, assert_inside, check_sound, steps
from tests.operator_cases import Applied


class Weighted(nn.Module):
    """A function of x and parameters."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        generator = torch.Generator().manual_seed(len(shapes))
        self.weights = nn.ParameterList(torch.randn(shape, generator=generator) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.weights)


WORDS = torch.tensor([[0, 3, 3], [1, 0, 4], [2, 2, 2], [4, 1, 0]])


PARAMETERS: dict[str, tuple[nn.Module, Any]] = {
    "embedding": (nn.Embedding(5, 3), WORDS),
    "embedding, padding_idx": (nn.Embedding(5, 3, padding_idx=0), WORDS),
    "embedding, nonlinear": (
        nn.Sequential(nn.Embedding(5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2)),
        WORDS,
    ),
    "linear": (nn.Linear(3, 4), (3,)),
    "linear, two": (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (3,)),
    "conv1d": (nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 5)),
    "conv2d": (nn.Conv2d(2, 2, 2, dilation=2), (2, 4, 4)),
    "conv2d, reflect": (nn.Conv2d(1, 2, 2, padding=1, padding_mode="reflect"), (1, 3, 3)),
    "conv3d": (nn.Conv3d(1, 1, 2, bias=False), (1, 2, 2, 3)),
    "conv_transpose1d": (nn.ConvTranspose1d(2, 1, 2, stride=2, output_padding=1), (2, 3)),
    "conv_transpose2d": (nn.ConvTranspose2d(2, 2, 2, groups=2), (2, 2, 3)),
    "conv_transpose3d": (nn.ConvTranspose3d(1, 1, 2), (1, 2, 1, 2)),
    "batch_norm": (nn.BatchNorm1d(3).eval(), (3,)),
    "layer_norm": (nn.LayerNorm(3), (3,)),
    "group_norm": (nn.GroupNorm(2, 4), (4, 2)),
    "bilinear": (nn.Bilinear(3, 3, 2), None),
    "LSTM": (nn.LSTM(2, 2, batch_first=True), (2, 2)),
    "mul": (Weighted(torch.mul, (3,)), (3,)),
    "mul, parameters alone": (Weighted(lambda x, v, w: x + (v * w).sum(), (3,), (3,)), (3,)),
    "mm": (Weighted(torch.mm, (3, 3)), (3,)),
    "matmul, left": (Weighted(lambda x, w: w @ x.unsqueeze(-1), (3, 3)), (3,)),
    "matmul, batched": (Weighted(lambda x, w: x[:, None, None] @ w, (2, 3, 3)), (3,)),
    "mv": (Weighted(torch.mv, (3,)), (3,)),
    "dot": (Weighted(lambda x, v, w: x * torch.dot(v, w), (3,), (3,)), (3,)),
    "inner": (Weighted(torch.inner, (3, 3)), (3,)),
    "inner, vector": (Weighted(torch.inner, (3,)), (3,)),
    "outer": (Weighted(lambda x, v, w: x @ torch.outer(v, w), (3,), (3,)), (3,)),
    "addmm": (
        Weighted(lambda x, b, w: torch.addmm(b, x, w, alpha=2.0, beta=-1.0), (3,), (3, 3)),
        (3,),
    ),
    "addmv": (
        Weighted(lambda x, b, w, v: x * torch.addmv(b, w, v, beta=-1.0), (3,), (3, 3), (3,)),
        (3,),
    ),
    "einsum": (Weighted(lambda x, w: torch.einsum("bi,oi->bo", x, w), (3, 3)), (3,)),
    "einsum, outer": (Weighted(lambda x, w: torch.einsum("bi,o->bio", x, w), (3,)), (3,)),
    "div": (Weighted(lambda x, w: x / (w.abs() + 1), (3,)), (3,)),
    "expanded": (
        Weighted(lambda x, w: torch.cat([x, w.expand(x.shape[0], 2)], 1).tanh(), (2,)),
        (3,),
    ),
    "shared": (Weighted(lambda x, w: (x @ w).relu() @ w, (3, 3)), (3,)),
    "maximum": (Weighted(torch.maximum, (3,)), (3,)),
}


BALLS = {
    "Linf": lambda: bl.Linf(eps=0.2),
    "L2": lambda: bl.L2(eps=0.3),
    "L1": lambda: bl.L1(eps=0.4),
}


@pytest.mark.parametrize("both", [False, True], ids=["parameters", "parameters and input"])
@pytest.mark.parametrize("norm", ["Linf", "L2", pytest.param("L1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PARAMETERS)
def test_perturbed_parameters(name: str, norm: str, both: bool) -> None:
    module, given = PARAMETERS[name]
    module = copy.deepcopy(module).double()
    generator = torch.Generator().manual_seed(1)
    draw = lambda shape: torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    inputs = (
        (draw((3,)), draw((3,)))
        if given is None
        else (given,)
        if isinstance(given, Tensor)
        else (draw(given),)
    )
    if both and isinstance(given, Tensor):
        pytest.skip("words cannot move")
    net = net_of((__name__, name), module, *inputs)
    entries = tuple(bl.Linf(x, 0.3) if both else x for x in inputs)
    perturb = {path: BALLS[norm]() for path, _ in module.named_parameters()}
    placed = {path: perturb[path].at(value.detach()) for path, value in module.named_parameters()}
    truth = []
    for sign in (0, 0, 0, 0, 0, 0, 1, -1):  # random members, and for boxes two corners
        at = {path: _member(set_, sign, generator, False) for path, set_ in placed.items()}
        points = tuple(
            _member(e, sign, generator, True) if isinstance(e, bl.Region) else e for e in entries
        )
        with torch.no_grad():
            truth.append(pytree.tree_leaves(torch.func.functional_call(module, at, points)))
    for method in METHODS:
        bounds = net.bounds(*entries, method=method, alpha=steps(method), perturb=perturb)
        leaves = pytree.tree_leaves(bounds, is_leaf=lambda b: isinstance(b, bl.Bounds))
        for values in truth:
            for value, bound in zip(values, leaves, strict=True):
                assert_inside(value, bound.lower.detach(), bound.upper.detach(), method)


def _member(set_: bl.Region, sign: int, generator: torch.Generator, batched: bool) -> Tensor:
    if sign and set_.is_box:
        return set_.hull().upper if sign > 0 else set_.hull().lower
    return set_.sample(generator, batched)


TWO = {
    "mul": torch.mul,
    "sub": torch.sub,
    "maximum": torch.maximum,
    "div": lambda x, y: x / (y * y + 1),
    "bmm": lambda x, y: torch.bmm(x.unsqueeze(1), y.unsqueeze(2)),
    "where": lambda x, y: torch.where(x > y, x, 2 * y),
    "cat": lambda x, y: torch.cat([x, y], 1).softmax(1),
    "nested": lambda x, y: torch.tanh(x * y) * x,
}


@pytest.mark.parametrize(
    "kinds",
    [("Linf", "Linf"), ("L2", "Linf"), ("L2", "L1"), ("Linf", "fixed"), ("fixed", "L1")],
    ids="-".join,
)
@pytest.mark.parametrize("name", TWO)
def test_two_inputs(name: str, kinds: tuple[str, str]) -> None:
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(6, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    sets = {
        "Linf": lambda t: bl.Linf(t, 0.5),
        "L2": lambda t: bl.L2(t, 0.8),
        "L1": lambda t: bl.L1(t, 1.0),
        "fixed": lambda t: t,
    }
    net = net_of((__name__, "two inputs", name), Applied(TWO[name]), x, y)
    check_sound(
        TWO[name],
        tuple(sets[kind](t) for kind, t in zip(kinds, (x, y), strict=True)),
        net=net,
        count=16,
    )
