"""The example of an activation of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.rules.registry import unregister
from examples.add_an_activation import Network, curve, isru
from tests.helpers.contract import METHODS, assert_close, check_point, check_sound, steps

OPERATOR = torch.ops.examples.isru.default


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def wrong_rule() -> Iterator[None]:
    """The rule of an operator that is concave where this one is convex."""
    unregister(OPERATOR)
    bl.elementwise(OPERATOR, curve=lambda a: curve(a).negated())
    yield
    unregister(OPERATOR)
    bl.elementwise(OPERATOR, curve=curve)


def formula(x: Tensor, a: float) -> Tensor:
    return x / torch.sqrt(1 + a * x * x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [0.1, 1.0, 10.0])
def test_bounds_hold(eps: float, dtype: torch.dtype) -> None:
    x = torch.randn(3, 4, dtype=dtype)
    found = check_sound(Network().to(dtype), (bl.Linf(x, eps),), count=200)
    assert set(found) == set(METHODS)


def test_bounds_of_a_point_are_its_value() -> None:
    check_point(Network(), torch.randn(3, 4))


@pytest.mark.parametrize("method", METHODS)
def test_the_unit_alone_is_exact(method: str) -> None:
    """It rises, so its range is between the values at the ends."""
    x, eps = torch.linspace(-4, 4, 12).double().reshape(3, 4), 0.7
    net = bl.capture(lambda x: isru(x, 2.0), x)
    found = net.bounds(bl.Linf(x, eps), method=method, alpha=steps(method))
    assert_close(found.lower, formula(x - eps, 2.0))
    assert_close(found.upper, formula(x + eps, 2.0))


def test_lines_hold_in_every_interval() -> None:
    """Those between any two points of a grid, at all points of the grid between them."""
    grid = torch.linspace(-3, 3, 61, dtype=torch.float64)
    i, j = torch.triu_indices(len(grid), len(grid), 1)
    box = bl.Box(grid[i].unsqueeze(1), grid[j].unsqueeze(1))
    lines = bl.capture(lambda x: isru(x, 2.0), box.centre).linear_bounds(box)
    for x in grid:
        inside = (box.lower <= x) & (x <= box.upper)
        found = lines.evaluate(
            {name: torch.full_like(box.lower, float(x)) for name in lines.lower_A}
        )
        value = formula(x, 2.0)
        assert (found.lower <= value + 1e-9)[inside].all()
        assert (found.upper >= value - 1e-9)[inside].all()


@pytest.mark.parametrize("method", ["ibp", "crown"])
def test_tighter_than_the_formula_in_parts(method: str) -> None:
    model, composed = Network(), Network(composed=True)
    composed.load_state_dict(model.state_dict())
    x = torch.randn(3, 4)
    assert_close(model(x), composed(x))
    own, parts = (
        bl.capture(part, x).bounds(bl.Linf(x, 0.5), method=method) for part in (model, composed)
    )
    assert (own.width < 0.9 * parts.width).all()


@pytest.mark.usefixtures("wrong_rule")
def test_a_wrong_shape_is_found() -> None:
    """The attack that the rule passes."""
    with pytest.raises(AssertionError, match="bound"):
        check_sound(Network(), (bl.Linf(torch.randn(3, 4), 1.0),), count=200)


def test_gradients_of_the_operator() -> None:
    x = torch.linspace(-3, 3, 9).double().requires_grad_()
    torch.autograd.gradcheck(lambda x: isru(x, 0.5), x)
