"""Boxes: hulls and linear minima are exact."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from torch import Tensor

import boundlab as bl
from tests.helpers.strategies import D, tensors


@settings(max_examples=50, deadline=None)
@given(x=tensors(2, 3), c=tensors(4, 2, 3), eps=tensors(2, 3, low=0, high=2))
def test_box_minimum_is_the_best_vertex(x: Tensor, c: Tensor, eps: Tensor) -> None:
    best = torch.full((4, 2), torch.inf, dtype=D)
    for signs in itertools.product((-1.0, 1.0), repeat=3):
        vertex = x + eps * torch.tensor(signs, dtype=D)
        best = torch.minimum(best, (c * vertex).sum(-1))
    for region in (bl.Linf(x, eps), bl.Box(x - eps, x + eps)):
        torch.testing.assert_close(region.minimum(c), best)


def test_zero_width_and_valid_range() -> None:
    x = torch.rand(2, 3)
    for region in (
        bl.Linf(x, 0.0),
        bl.L2(x, 0.0),
        bl.L1(x, 0.0),
        bl.Lp(x, 3, 0.0),
        bl.L0(x, 0),
        bl.Box(x, x),
    ):
        assert (region.hull().lower == x).all() and (region.hull().upper == x).all()
        torch.testing.assert_close(region.minimum(torch.ones(1, 2, 3)), x.sum(1)[None])
    cut = bl.Linf(x, 5.0, lower=0.0, upper=1.0).hull()
    assert cut.lower.min() == 0 and cut.upper.max() == 1
