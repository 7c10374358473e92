"""Softmax, beyond the table of operators (tests/operator_cases/reductions.py)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import boundlab as bl
from tests.helpers.captures import net_of


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("scale", "width"), [(1, 0.1), (1, 5), (30, 10), (300, 100), (1e4, 1e3), (1e-3, 1e-4)]
)
@pytest.mark.parametrize("size", [1, 2, 5, 17])
def test_softmax_intervals_are_exact(
    size: int, scale: float, width: float, kind: torch.dtype
) -> None:
    """Each share is least with its own score lowest and all others highest."""
    scores = scale * torch.randn(
        16, size, dtype=kind, generator=torch.Generator().manual_seed(size)
    )
    net = net_of((__name__, size, kind), nn.Softmax(-1), scores)
    found = net.bounds(bl.Linf(scores, width), method="ibp")
    low, up, own = (
        (scores - width).double(),
        (scores + width).double(),
        torch.eye(size, dtype=torch.bool),
    )
    at = lambda mine, others: (
        torch.where(own, mine.unsqueeze(-1), others.unsqueeze(-2))
        .softmax(-1)
        .diagonal(dim1=-2, dim2=-1)
    )
    tolerance = (
        {"atol": 1e-6 * (1 + scale / 100), "rtol": 0.0}
        if kind == torch.float32
        else {"atol": 1e-12, "rtol": 0.0}
    )
    torch.testing.assert_close(found.lower.double(), at(low, up), **tolerance)
    torch.testing.assert_close(found.upper.double(), at(up, low), **tolerance)
