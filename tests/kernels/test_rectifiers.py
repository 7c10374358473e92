"""ReLUs with gradients written out give what autograd gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from boundlab.kernels import blocks
from boundlab.kernels.rectifiers import rectified, rectified_ball, sloped
from boundlab.relaxations.interval import Interval
from tests.helpers.tensors import draw
from tests.helpers.watching import watch


def relu_by_hand(rows: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Case by case, with autograd's gradients."""
    unstable = (lower < 0) & (upper > 0)
    slope = torch.where(
        unstable, upper / torch.where(unstable, upper - lower, 1.0), (lower >= 0).to(rows.dtype)
    )
    line = torch.where(unstable, (upper > -lower).to(rows.dtype), slope.detach())
    positive, negative = rows.clamp(min=0), rows.clamp(max=0)
    return positive * line + negative * slope, negative * torch.where(unstable, -slope * lower, 0.0)


@pytest.mark.parametrize("block", [1, 3, 1 << 17])
@pytest.mark.parametrize("ball", [False, True])
@settings(deadline=None)
@given(st.integers(0, 999), st.integers(1, 3))
def test_rows_through_a_relu(block: int, ball: bool, seed: int, count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(blocks.BLOCK, "cpu", block)
        parts = watch(patch, blocks, "_parts")
        check_rows_through_a_relu(ball, seed, count)
    assert bool(parts) == (10 * count > 4 * block)


def check_rows_through_a_relu(ball: bool, seed: int, count: int) -> None:
    middle, radius = draw(2, 5, seed=seed), draw(2, 5, seed=seed + 1).abs()
    inputs = [
        draw(count, 2, 5, seed=seed + 2),
        *((middle, radius) if ball else (middle - radius, middle + radius)),
    ]
    found, expected = ([tensor.clone().requires_grad_() for tensor in inputs] for _ in range(2))
    ours = rectified(*found, ball=ball)
    theirs = (
        relu_by_hand(expected[0], expected[1] - expected[2], expected[1] + expected[2])
        if ball
        else relu_by_hand(*expected)
    )
    torch.testing.assert_close(ours, theirs)
    weights = [draw(count, 2, 5, seed=seed + k) for k in (3, 4)]
    for outputs in (ours, theirs):
        sum((w * out).sum() for w, out in zip(weights, outputs, strict=True)).backward()  # type: ignore[union-attr]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("block", [1, 4, 1 << 17])
@pytest.mark.parametrize("summed", [False, True])
def test_blocks_change_nothing(block: int, summed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = draw(5, 2, 3)
    inputs = [draw(2, 5, 2, 3, seed=1), lower, lower + draw(5, 2, 3, seed=2).abs()]
    balls = draw(5, 2, 3, seed=3), draw(5, 2, 3, seed=4).abs()
    within = lambda rows, *ball: rectified(rows, *ball, summed, ball=True)
    assert torch.autograd.gradcheck(
        rectified_ball, tuple(tensor.requires_grad_() for tensor in balls)
    )
    whole = [*rectified(*inputs, summed), *within(inputs[0], *balls), *rectified_ball(*balls)]
    monkeypatch.setitem(blocks.BLOCK, "cpu", block)
    made = watch(monkeypatch, blocks, "_parts")
    parts = [*rectified(*inputs, summed), *within(inputs[0], *balls), *rectified_ball(*balls)]
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))
    assert len(made) == (3 if block <= 4 else 0)
    assert torch.autograd.gradcheck(rectified_ball, balls)
    assert torch.autograd.gradcheck(
        lambda *tensors: rectified(*tensors, summed),
        tuple(tensor.requires_grad_() for tensor in inputs),
    )
    assert torch.autograd.gradcheck(within, (inputs[0], *balls))


@pytest.mark.parametrize("shared", [False, True])
def test_rows_through_a_relu_of_chosen_slope(shared: bool) -> None:
    rows, free = (
        draw(3, 2, 4).requires_grad_(),
        draw(1 if shared else 3, 2, 4, seed=1).sigmoid().requires_grad_(),
    )
    slope, bias = draw(2, 4, seed=2).sigmoid(), draw(2, 4, seed=3).abs()
    coefficients, constants = sloped(rows, free, slope, bias)
    torch.testing.assert_close(coefficients, rows.clamp(min=0) * free + rows.clamp(max=0) * slope)
    torch.testing.assert_close(constants, rows.clamp(max=0) * bias)
    assert torch.autograd.gradcheck(lambda r, f: sloped(r, f, slope, bias), (rows, free))


def test_zeros_among_the_rows_have_gradients() -> None:
    """Where a ReLU is active it is the identity, for a coefficient of 0 too."""
    rows, one = (
        torch.zeros(1, 1, 1, dtype=torch.float64, requires_grad=True),
        torch.ones(1, 1, dtype=torch.float64),
    )
    for coefficients, _ in (rectified(rows, one, 2 * one), sloped(rows, one[None], one, 0 * one)):
        assert torch.autograd.grad(coefficients.sum(), rows)[0].item() == 1


def test_gradients_in_half_precision() -> None:
    rows = draw(2, 3, 4).to(torch.bfloat16).requires_grad_()
    lower = draw(3, 4, seed=1).to(torch.bfloat16).requires_grad_()
    coefficients, constants = rectified(rows, lower, lower.detach() + 1)
    gradients = torch.autograd.grad(coefficients.sum() + constants.sum(), [rows, lower])
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("summed", [False, True])
def test_steps_can_be_differentiated_twice(summed: bool) -> None:
    lower = draw(2, 3)
    inputs = [draw(2, 2, 3, seed=1), lower, lower + draw(2, 3, seed=2).abs()]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    assert torch.autograd.gradgradcheck(lambda *tensors: rectified(*tensors, summed), tuple(inputs))
    rows, free = (
        draw(2, 2, 3, seed=3).requires_grad_(),
        draw(2, 2, 3, seed=4).sigmoid().requires_grad_(),
    )
    assert torch.autograd.gradgradcheck(
        lambda r, f: sloped(r, f, draw(2, 3, seed=5).sigmoid(), draw(2, 3, seed=6).abs()),
        (rows, free),
    )
    ball = draw(2, 3, seed=7).requires_grad_(), draw(2, 3, seed=8).abs().requires_grad_()
    assert torch.autograd.gradgradcheck(rectified_ball, ball)
    assert torch.autograd.gradgradcheck(
        lambda *tensors: rectified(*tensors, summed, ball=True), (inputs[0], *ball)
    )


def test_points_and_zeros_through_a_relu() -> None:
    ends_ = torch.tensor([[-1.0, 0.0, 1.0, -0.0]], dtype=torch.float64).requires_grad_()
    rows = draw(2, 1, 4).requires_grad_()
    coefficients, constants = rectified(rows, ends_, ends_)
    assert torch.equal(constants, torch.zeros_like(constants))
    torch.testing.assert_close(coefficients[..., 0], torch.zeros(2, 1, dtype=torch.float64))
    torch.testing.assert_close(coefficients[..., 2], rows[..., 2])
    coefficients.sum().backward()
    assert rows.grad is not None and ends_.grad is not None and torch.isfinite(ends_.grad).all()


# -- balls -----------------------------------------------------------------------------------------


def test_a_ball_through_a_relu() -> None:
    centre, radius = draw(4, 5).requires_grad_(), draw(4, 5, seed=1).abs().requires_grad_()
    assert torch.autograd.gradcheck(rectified_ball, (centre, radius))
    assert torch.autograd.gradgradcheck(rectified_ball, (centre, radius))
    expected = Interval((centre - radius).clamp(min=0), (centre + radius).clamp(min=0)).ball
    torch.testing.assert_close(rectified_ball(centre, radius), expected)


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 3, 2)])
def test_constants_are_summed_by_samples(shape: tuple[int, ...]) -> None:
    middle, radius = draw(*shape), draw(*shape, seed=1).abs()
    inputs = [
        tensor.requires_grad_()
        for tensor in (draw(2, *shape, seed=2), middle - radius, middle + radius)
    ]
    (_, whole), (_, sums) = rectified(*inputs), rectified(*inputs, summed=True)
    torch.testing.assert_close(sums, whole.reshape(2, 7, -1).sum(2))
    for a, b in zip(
        torch.autograd.grad((sums**3).sum(), inputs),
        torch.autograd.grad((whole.reshape(2, 7, -1).sum(2) ** 3).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
