"""Operators whose parameters are perturbed, and operators of two perturbed inputs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import boundlab as bl
from tests.helpers.captures import net_of
from tests.helpers.contract import METHODS, assert_inside, check_sound, steps
from tests.helpers.weighted import PARAMETERS
from tests.operator_cases import Applied

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
