"""Gradient ascent on bounds, on functions whose maximum is known."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundlab.methods.optimizer import Variable, ascend


def length(i: int) -> float:
    return 0.45 * 0.82**i


def parabola(top: Tensor, upper: float = 1.0) -> tuple[Tensor, Tensor]:
    """The best values of 1 - (x - top)^2 for every row and sample, and where they are."""
    start = torch.full((1, *top.shape), 0.5).requires_grad_()
    scale = torch.ones(1, *top.shape)
    variable = Variable(start, scale, upper, rows_of=lambda mask: mask[None])
    best, values = ascend(lambda: 1 - (variable.value[0] - top) ** 2, {"x": variable}, 30, length)
    return best, values["x"][0]


def test_a_parabola_with_its_top_inside() -> None:
    top = torch.tensor([[0.1, 0.35], [0.8, 0.5]])
    best, at = parabola(top)
    assert torch.allclose(best, torch.ones(2, 2), atol=5e-3)
    assert torch.allclose(at, top, atol=0.07)


def test_values_are_projected_onto_their_range() -> None:
    best, at = parabola(torch.tensor([[2.0, -1.0]]))
    assert torch.equal(at, torch.tensor([[1.0, 0.0]]))
    assert torch.allclose(best, torch.tensor([[0.0, 0.0]]))
    _, at = parabola(torch.tensor([[2.0, -1.0]]), math.inf)
    assert torch.allclose(at, torch.tensor([[2.0, 0.0]]), atol=0.05)


def test_a_bound_that_is_high_enough_is_left_alone() -> None:
    top = torch.tensor([[0.5, 0.0]])
    variable = Variable(
        torch.full((1, 1, 2), 0.6).requires_grad_(), rows_of=lambda mask: mask[None]
    )
    bound = lambda: 1 - (variable.value[0] - top) ** 2
    best, values = ascend(bound, {"x": variable}, 10, length, enough=0.9)
    assert values["x"][0, 0, 0] == 0.6
    assert best[0, 1] > 0.9


def test_the_first_call_may_add_variables() -> None:
    variables: dict[str, Variable] = {}

    def bound() -> Tensor:
        if not variables:
            variables["x"] = Variable(torch.zeros(1, 1, 1).requires_grad_())
        return variables["x"].value[0]

    best, _ = ascend(bound, variables, 20, length)
    assert best == 1


def test_bounds_that_promise_little_are_left_alone() -> None:
    variable = Variable(
        torch.full((1, 1, 2), 0.5).requires_grad_(), rows_of=lambda mask: mask[None]
    )
    slope = torch.tensor([[1e-4, 1.0]])
    calls = 0

    def bound() -> Tensor:
        nonlocal calls
        calls += 1
        return variable.value[0] * slope

    best, _ = ascend(bound, {"x": variable}, 20, length, room=torch.ones_like)
    assert best[0, 1] == 1.0
    many = calls
    with torch.no_grad():
        variable.value.fill_(0.5)
    slope = torch.full((1, 2), 1e-4)
    calls = 0
    ascend(bound, {"x": variable}, 20, length, room=torch.ones_like)
    assert calls == 2 < many  # one step is made all the same


def test_what_bounds_promise() -> None:
    value = torch.tensor([[[0.25, 0.5], [0.0, 1.0]]])  # (numbers, rows, samples)
    gradient = torch.tensor([[[1.0, -2.0], [-1.0, -3.0]]])
    own = Variable(value, rows_of=lambda mask: mask[None])
    expected = torch.tensor([[0.75, 1.0], [0.0, 3.0]])
    assert torch.equal(own.promise(gradient, value[0]), expected)
    together = Variable(value, rows_of=lambda mask: mask.sum(1, keepdim=True)[None])
    sums = expected.sum(1, keepdim=True).expand(2, 2)
    assert torch.equal(together.promise(gradient, value[0]), sums)
    for unknown in (Variable(value), Variable(value, upper=math.inf, rows_of=own.rows_of)):
        assert unknown.promise(gradient, value[0]).isinf().all()
