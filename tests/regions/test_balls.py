"""Regions: hulls and linear minima are exact for the set as defined, and samples are members."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import boundlab as bl
from tests.helpers.strategies import D, tensors

numbers = st.floats(-3, 3, allow_nan=False, width=32)


@settings(max_examples=50, deadline=None)
@given(
    x=tensors(2, 3),
    c=tensors(4, 2, 3),
    eps=tensors(2, low=0, high=2),
    p=st.sampled_from([1.0, 1.5, 2.0, 3.0, math.inf]),
)
def test_ball_minimum_is_attained_by_a_member_and_never_beaten(
    x: Tensor, c: Tensor, eps: Tensor, p: float
) -> None:
    """The point where Hoelder's inequality is tight lies in the ball and has that value; samples
    have no smaller one."""
    region = bl.Lp(x, p, eps)
    found = region.minimum(c)
    q = 1.0 if p == math.inf else math.inf if p == 1 else p / (p - 1)
    for row in range(4):
        direction = torch.zeros_like(x)
        for i in range(2):
            a = c[row, i]
            if p == 1:
                k = a.abs().argmax()
                direction[i, k] = -torch.sign(a[k])
            elif p == math.inf:
                direction[i] = -torch.sign(a)
            elif a.abs().max() > 0:
                direction[i] = -torch.sign(a) * (a.abs() / torch.linalg.vector_norm(a, q)) ** (
                    q - 1
                )
        point = x + eps[:, None] * direction
        assert (torch.linalg.vector_norm(direction, p, dim=1) <= 1 + 1e-9).all()
        torch.testing.assert_close((c[row] * point).sum(-1), found[row], atol=1e-7, rtol=1e-7)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        assert ((c * region.sample(generator)).sum(-1) >= found - 1e-9).all()
    hull = region.hull()
    torch.testing.assert_close(hull.lower, x - eps[:, None])
    torch.testing.assert_close(hull.upper, x + eps[:, None])


@settings(max_examples=50, deadline=None)
@given(x=tensors(2, 4, low=0, high=1), c=tensors(3, 2, 4), k=st.integers(0, 4))
def test_l0_minimum_against_brute_force(x: Tensor, c: Tensor, k: int) -> None:
    region = bl.L0(x, k, -0.5, 1.5)
    best = (c * x).sum(-1)
    for chosen in itertools.combinations(range(4), k):
        for ends in itertools.product((-0.5, 1.5), repeat=k):
            point = x.clone()
            for i, end in zip(chosen, ends, strict=True):
                point[:, i] = end
            best = torch.minimum(best, (c * point).sum(-1))
    torch.testing.assert_close(region.minimum(c), best)
    sample = region.sample(torch.Generator().manual_seed(1))
    assert ((sample != x).sum(1) <= k).all()
    assert ((region.hull().lower <= sample) & (sample <= region.hull().upper)).all()


def test_l0_with_one_budget_per_sample() -> None:
    x, c = torch.full((3, 4), 0.5, dtype=D), torch.ones(1, 3, 4, dtype=D)
    region = bl.L0(x, torch.tensor([0, 1, 4]), 0.0, 1.0)
    assert region.minimum(c).tolist() == [[2.0, 1.5, 0.0]]
    assert (region.hull().lower[0] == x[0]).all()


@settings(max_examples=50, deadline=None)
@given(x=tensors(2, 3, low=0, high=1), c=tensors(4, 2, 3), eps=st.floats(0.01, 2))
def test_a_ball_cut_by_a_valid_range_is_between_ball_box_and_truth(
    x: Tensor, c: Tensor, eps: float
) -> None:
    cut = bl.L2(x, eps, lower=0.0, upper=1.0)
    found = cut.minimum(c)
    assert (found >= bl.L2(x, eps).minimum(c) - 1e-12).all()
    assert (found >= bl.Linf(x, eps, lower=0.0, upper=1.0).minimum(c) - 1e-12).all()
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        point = cut.sample(generator)
        assert ((point >= 0) & (point <= 1)).all()
        assert (torch.linalg.vector_norm(point - x, dim=1) <= eps + 1e-9).all()
        assert ((c * point).sum(-1) >= found - 1e-9).all()


def test_a_ball_on_a_parameter_is_one_set_for_the_whole_tensor() -> None:
    w = torch.randn(3, 4, dtype=D)
    region = bl.L2(eps=0.5).at(w)
    c = torch.randn(2, 5, 3, 4, dtype=D)  # rows, samples, *shape
    expected = (c * w).flatten(2).sum(2) - 0.5 * c.flatten(2).norm(dim=2)
    torch.testing.assert_close(region.minimum(c), expected)
    assert torch.linalg.vector_norm(region.sample(batched=False) - w) <= 0.5 + 1e-9


def test_eps_per_call_per_sample_per_element() -> None:
    x = torch.zeros(2, 3)
    assert bl.Linf(x, 0.1).hull().upper.tolist() == torch.full((2, 3), 0.1).tolist()
    assert bl.Linf(x, torch.tensor([0.1, 0.2])).hull().upper[:, 0].tolist() == pytest.approx(
        [0.1, 0.2]
    )
    assert bl.Linf(x, torch.tensor([[0.0, 0.1, 0.2]])).hull().upper[1].tolist() == pytest.approx(
        [0.0, 0.1, 0.2]
    )
    assert bl.Linf(x, [0.1, 0.2]).hull().upper[:, 0].tolist() == pytest.approx([0.1, 0.2])  # type: ignore[arg-type]
