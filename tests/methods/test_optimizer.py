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
