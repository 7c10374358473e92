"""Coefficients of a weight as outer products."""

from __future__ import annotations

import math

import torch

import boundlab as bl
from boundlab.coefficients.dense import PerSample
from boundlab.coefficients.outer import Outer
from boundlab.losses.flatness import _Lines

# -- what each sample asks of a weight -------------------------------------------------------------


def test_factors_stand_for_their_product() -> None:
    left, right = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    outer, value, shares = (
        Outer(left, right),
        torch.randn(4, 5, dtype=torch.float64),
        torch.rand(3, dtype=torch.float64),
    )
    dense = outer.dense()
    torch.testing.assert_close(outer.dot(value), (dense * value).flatten(2).sum(2))
    torch.testing.assert_close(
        outer.total(shares)[:, 0], torch.einsum("rsoi,s->roi", dense, shares)
    )
    for order in (1.0, 2.0, 3.0, math.inf):
        torch.testing.assert_close(
            outer.norm(order), torch.linalg.vector_norm(dense.flatten(2), order, dim=2)
        )
    for region in (
        bl.L2(value, 0.3),
        bl.L1(value, 0.3),
        bl.Linf(value, 0.3),
        bl.L2(value, 0.3, upper=float(value.max())),
        bl.L2(value, value.abs()),
    ):
        torch.testing.assert_close(region.least(outer), region.minimum(dense))
        torch.testing.assert_close(region.least(-outer), region.minimum(-dense))
    lines = _Lines(
        torch.ones(3, dtype=torch.float64), [(bl.L2(value, 0.3), Outer(left[:1], right))]
    )
    same = _Lines(
        torch.ones(3, dtype=torch.float64), [(bl.L2(value, 0.3), PerSample.of(dense[:1]))]
    )
    torch.testing.assert_close(lines.largest(), same.largest())
    torch.testing.assert_close(lines.largest_total(shares), same.largest_total(shares))
