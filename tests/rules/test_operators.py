"""Every operator of the table, attacked: bounds by every method and norm must hold, at every node,
in both precisions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import boundlab as bl
from tests.helpers.contract import METHODS, assert_inside, assert_within, check_sound, slack, steps
from tests.operator_cases import CASES, ELEMENTWISE, OperatorCase
from tests.operator_cases.bundles import (
    KINDS,
    SOME,
    ball,
    centre,
    dtypes,
    every_case,
    model_and_net,
    region,
)


@every_case
@dtypes
def test_operator(name: str, dtype: torch.dtype) -> None:
    """The graph computes what the model computes; all bounds hold; with radius 0 they are the
    value."""
    model, net = model_and_net(name, dtype)
    check_graph(model, net, region(CASES[name], dtype, seed=1))
    check_sound(
        model, (region(CASES[name], dtype),), net=net, count=2, nodes=dtype == torch.float64
    )
    if dtype == torch.float64:
        check_radius_zero(model, net, centre(CASES[name], dtype, seed=2))


def check_graph(model: nn.Module, net: bl.Net, around: bl.Region) -> None:
    box = around.hull()
    for x in (box.centre, box.lower, box.upper):
        with torch.no_grad():
            values = net.graph.run(net.reader.parameters() | dict.fromkeys(net.graph.inputs, x))
            truth = pytree.tree_leaves(model(x))
        for output, expected in zip(net.graph.outputs, truth, strict=True):
            torch.testing.assert_close(
                values[output.name],
                expected,
                msg=lambda text: f"the graph computes another value: {text}",
            )


def check_radius_zero(model: nn.Module, net: bl.Net, x: Tensor) -> None:
    """As contract.check_point, for a net that is already captured."""
    truth = [y.detach() for y in pytree.tree_leaves(model(x))]
    for method in METHODS:
        found = pytree.tree_leaves(
            net.bounds(bl.Linf(x, 0.0), method=method, alpha=steps(method)),
            is_leaf=lambda b: isinstance(b, bl.Bounds),
        )
        for bounds, value in zip(found, truth, strict=True):
            for end in bounds:
                apart = (end.detach() - value).abs()
                assert_within(apart, 10 * slack(value), f"{method}: with radius 0 a bound differs")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SOME)
def test_sound_in_other_sets(name: str, kind: str) -> None:
    model, net = model_and_net(name, torch.float64)
    check_sound(model, (ball(kind, CASES[name], torch.float64),), net=net, count=3)


SPECIAL = (
    0.0,
    -0.0,
    0.5,
    -0.5,
    0.8,
    0.3,
    0.2,
    1.0,
    -1.0,
    1.2,
    -1.2,
    2.0,
    -2.0,
    3.0,
    -3.0,
    6.0,
    torch.pi,
    -torch.pi / 2,
)
"""Where something may happen to an elementwise function: kinks, jumps, turns."""


def intervals(case: OperatorCase, dtype: torch.dtype, count: int, seed: int = 0) -> bl.Box:
    """Intervals of every width and place inside the range of a case, some of them points, many with
    an end at a special value."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, *case.shape)
    uniform = lambda: torch.rand(shape, generator=generator, dtype=torch.float64)
    width = 10 ** (uniform() * 8 - 7)
    special = torch.tensor(SPECIAL, dtype=torch.float64)[
        torch.randint(len(SPECIAL), shape, generator=generator)
    ]
    middle = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    at = torch.where(uniform() < 0.4, special, middle)
    share = torch.where(uniform() < 0.5, uniform().round(), uniform())
    width = torch.where(uniform() < 0.05, 0, width)
    ends = torch.stack([at - share * width, at + (1 - share) * width]).to(dtype)
    low, high = ends.clamp(case.low, case.high)
    return bl.Box(low, high)


@dtypes
@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_dense_grid(name: str, dtype: torch.dtype) -> None:
    attack_on_grid(name, dtype, count=60, seed=0)


def attack_on_grid(name: str, dtype: torch.dtype, count: int, seed: int) -> None:
    """Intervals and lines of an elementwise function hold on a grid in hundreds of intervals."""
    model, net = model_and_net(name, dtype)
    box = intervals(CASES[name], dtype, count, seed)
    bounds, lines = net.bounds(box, method="ibp"), net.linear_bounds(box)
    shares = torch.cat([torch.linspace(0, 1, 25), torch.tensor([1e-3, 1e-2, 0.99, 0.999])]).to(
        dtype
    )
    (source,) = net.graph.inputs
    with torch.no_grad():
        for share in shares:
            x = torch.minimum(
                torch.maximum(box.lower + share * (box.upper - box.lower), box.lower), box.upper
            )
            value, line = model(x), lines.evaluate({source: x})
            for kind, (lower, upper) in (("interval", bounds), ("line", line)):
                room = slack(value, lower, upper, x)
                assert_inside(value, lower, upper, f"{name}: {kind}", room)


# -- deeper ----------------------------------------------------------------------------------------


@pytest.mark.slow
@dtypes
@every_case
@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_sound_deep(name: str, dtype: torch.dtype, scale: float) -> None:
    model, net = model_and_net(name, dtype)
    for seed in (1, 2):
        check_sound(model, (region(CASES[name], dtype, seed, scale),), net=net, count=24)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@every_case
def test_sound_in_other_sets_deep(name: str, kind: str) -> None:
    model, net = model_and_net(name, torch.float32)
    check_sound(model, (ball(kind, CASES[name], torch.float32, seed=1),), net=net, count=16)


@pytest.mark.slow
@dtypes
@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_dense_grid_deep(name: str, dtype: torch.dtype) -> None:
    for seed in (1, 2, 3):
        attack_on_grid(name, dtype, count=1000, seed=seed)
