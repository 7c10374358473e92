"""Clipping keeps every point that may be a counterexample."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from boundlab.verify.clip import clip, least
from boundlab.verify.pool import Boxes, Pool


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 4),
    size=st.integers(1, 6),
    zeros=st.booleans(),
)
def test_points_below_all_lines_stay(seed: int, rows: int, size: int, zeros: bool) -> None:
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)
    a, b = draw(8, rows, size), draw(8, rows) * 2
    if zeros:
        a = torch.where(draw(8, rows, size) > 0.5, 0, a)
    lower = draw(8, size)
    upper = lower + draw(8, size).abs()
    low, up, empty = clip(a, b, lower, upper)
    assert (low >= lower).all() and (up <= upper).all()
    for _ in range(100):
        x = lower + torch.rand(8, size, generator=g, dtype=torch.float64) * (upper - lower)
        below = ((torch.einsum("dri,di->dr", a, x) + b) <= 0).all(1)
        inside = ((low <= x) & (x <= up)).all(1)
        assert (~below | (inside & ~empty)).all()


def test_infinite_lines_clip_nothing() -> None:
    lower, upper = torch.zeros(1, 2).double(), torch.ones(1, 2).double()
    for a, b in ((torch.nan, 0.0), (1.0, -torch.inf), (torch.inf, 0.0), (0.0, torch.nan)):
        lines = torch.full((1, 1, 2), a).double(), torch.full((1, 1), b).double()
        low, up, empty = clip(*lines, lower, upper)
        assert not empty.any() and torch.equal(low, lower) and torch.equal(up, upper)


def test_least_values() -> None:
    a = torch.tensor([[[1.0, -2.0]]]).double()
    found = least(
        a, torch.ones(1, 1).double(), -torch.ones(1, 2).double(), torch.ones(1, 2).double()
    )
    assert found.item() == -2.0


def test_pool_loses_nothing() -> None:
    count = 50
    bound = torch.randn(count).double()
    column = bound[:, None]
    boxes = Boxes(column, column + 1, torch.arange(count), bound, column)
    pool = Pool(boxes)
    worst = pool.pick(7)
    assert torch.equal(worst.bound.sort().values, bound.sort().values[:7])
    drawn = pool.draw(5, torch.Generator().manual_seed(0))
    assert len(drawn) == 5 and set(drawn.clause.tolist()) <= set(pool.boxes.clause.tolist())
    assert len(pool) == count - 7 and pool.bound == float(pool.boxes.bound.min())
    pool.put(worst)
    assert torch.equal(pool.boxes.clause.sort().values, torch.arange(count))
    rest = pool.pick(1000)
    assert len(rest) == count and len(pool) == 0 and pool.bound == float("inf")
