"""Softmax, beyond the table of operators (tests/operator_cases/reductions.py)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

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


class Masked(nn.Module):
    """Attention of one head with a causal mask that is added to the scores."""

    def __init__(self, mask: float, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.parts = nn.Linear(4, 12).to(dtype)
        self.register_buffer("mask", torch.triu(torch.full((5, 5), mask, dtype=dtype), 1))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x).split(4, -1)
        return torch.softmax(query @ key.transpose(1, 2) + self.mask, -1) @ value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["ibp", "forward", "crown", "alpha-crown"])
def test_masks_of_large_numbers_are_as_tight_as_infinite_ones(
    method: str, dtype: torch.dtype
) -> None:
    x = torch.randn(2, 5, 4, dtype=dtype)
    noise = torch.rand(300, 1, *x.shape, dtype=dtype) * 0.1 - 0.05
    widths = []
    for mask in (-math.inf, -1e9, torch.finfo(dtype).min, -900.0, -500.0):
        model = Masked(mask, dtype)
        with torch.no_grad():
            bounds = bl.capture(model, x).bounds(bl.Linf(x, 0.05), method=method)
            values = model((x + noise).flatten(0, 2)).reshape(300, *x.shape)
        assert (bounds.lower - 1e-5 <= values).all() and (values <= bounds.upper + 1e-5).all()
        widths.append(float((bounds.upper - bounds.lower).mean()))
    assert max(widths) <= 1.02 * widths[0]


def test_scores_that_may_catch_up_are_not_masked() -> None:
    """A score that is far below another one's upper end, but not below its lower end."""
    x = torch.tensor([[0.0, -900.0, 0.5]], dtype=torch.float64)
    radius = torch.tensor([[0.0, 900.0, 0.5]], dtype=torch.float64)
    net = bl.capture(lambda x: torch.softmax(x, 1), x)
    for method in ("ibp", "crown", "alpha-crown"):
        with torch.no_grad():
            bounds = net.bounds(bl.Box(x - radius, x + radius), method=method)
        assert bounds.upper[0, 1] >= torch.softmax(torch.zeros(3).double(), 0)[1]
