"""Balls of intervals, least values over boxes: gradients written out are those of autograd."""

from __future__ import annotations

import torch

from boundlab.kernels.intervals import ball, ends, least
from tests.helpers.tensors import draw


def test_balls_and_their_ends() -> None:
    lower = draw(3, 4).requires_grad_()
    upper = (lower.detach() + draw(3, 4, seed=1).abs()).requires_grad_()
    assert torch.autograd.gradcheck(ball, (lower, upper)) and torch.autograd.gradcheck(
        ends, (lower, upper)
    )
    again = ends(*ball(lower, upper))
    torch.testing.assert_close(again[0], lower)
    torch.testing.assert_close(again[1], upper)


def test_least_over_a_box() -> None:
    rows, centre, radius = (
        draw(3, 2, 4).requires_grad_(),
        draw(2, 4, seed=1),
        draw(2, 4, seed=2).abs(),
    )
    torch.testing.assert_close(
        least(rows, centre, radius), (rows * centre).sum(2) - (rows.abs() * radius).sum(2)
    )
    assert torch.autograd.gradcheck(lambda r: least(r, centre, radius), (rows,))
