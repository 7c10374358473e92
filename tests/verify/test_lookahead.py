"""Looking ahead before inputs are split."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.verify.bound import Bounder
from boundlab.verify.boxes import Boxes
from boundlab.verify.inputs import InputSplitting
from boundlab.verify.lines import Lines
from boundlab.verify.lookahead import (
    CANDIDATES,
    ENOUGH,
    PATIENCE,
    Bounds,
    Patience,
    looked_ahead,
)
from boundlab.verify.query import Query, nothing


def boxes(score: list[list[float]], width: list[list[float]]) -> Boxes:
    upper = torch.tensor(width).double()
    count = len(upper)
    clause, bound = torch.zeros(count, dtype=torch.int64), torch.full((count,), -torch.inf).double()
    return Boxes(torch.zeros_like(upper), upper, clause, bound, torch.tensor(score).double())


def gains_by(weights: Tensor) -> Bounds:
    """Bounds that lack the squares of the widths, by how much each input counts."""

    def bounds(parts: Boxes) -> Lines:
        lacks = ((parts.upper - parts.lower).square() * weights).sum(1, keepdim=True)
        return Lines(torch.zeros(len(parts), 1, parts.lower.shape[1]).double(), -lacks)

    return bounds


def test_gains_count_beside_slopes() -> None:
    given = boxes([[1.0, 0.9, 0.2], [1.0, 0.9, 0.0]], [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    found = looked_ahead(given, gains_by(torch.tensor([0.0, 1.0, 1.0]).double()), 8)
    assert found.score.argmax(1).tolist() == [1, 1]
    assert (found.lower == given.lower).all() and (found.upper == given.upper).all()


def test_slopes_decide_where_nothing_gains() -> None:
    given = boxes([[0.1, 1.0, 0.2]], [[1.0, 1.0, 1.0]])
    found = looked_ahead(given, gains_by(torch.zeros(3).double()), 8)
    assert found.score.argmax(1).tolist() == [1]


def test_scores_of_nothing_stay() -> None:
    given = boxes([[0.0, 0.0]], [[1.0, 2.0]])
    found = looked_ahead(given, gains_by(torch.ones(2).double()), 8)
    assert (found.score == given.score).all()


def test_bounds_that_are_not_known_are_no_gain() -> None:
    given = boxes([[0.1, 1.0]], [[1.0, 1.0]])
    found = looked_ahead(given, gains_by(torch.tensor([torch.nan, torch.inf]).double()), 2)
    assert found.score.isfinite().all() and found.score.argmax(1).tolist() == [1]


def test_patience_ends() -> None:
    patience = Patience()
    for _ in range(3):
        patience.follow(ENOUGH, ENOUGH)
    assert not patience.is_over
    patience.follow(1e-3 * PATIENCE * ENOUGH, 1e-4 * ENOUGH)
    assert patience.candidates == CANDIDATES
    for _ in range(3):
        patience.follow(10 * PATIENCE * ENOUGH, ENOUGH)
    assert patience.is_over


class Fixed(Patience):
    """Looks at as many inputs however long that takes."""

    def __init__(self, candidates: int) -> None:
        super().__init__()
        self.candidates = candidates

    def follow(self, looking: float, bounding: float) -> None:
        pass


class Misleading(nn.Module):
    """One input moves the output by a line, which no split tightens, the others by what relaxations
    lose only: what they add is 0."""

    def forward(self, x: Tensor) -> Tensor:
        lost = (2 * x[:, 1:]).relu() - 2 * x[:, 1:].relu()
        return 5 * x[:, :1] + lost.sum(1, keepdim=True)


def test_fewer_domains_where_slopes_mislead() -> None:
    box = bl.Box(torch.tensor([[0.0, -1.0, -1.0, -1.0]]), torch.ones(1, 4))
    query = Query.of(Misleading(), bl.Property(box, lambda y: y[:, 0] > -0.01))
    counts = []
    for candidates in (8, 1):
        bounder = Bounder(query.net, query.rows)
        deadline = time.monotonic() + 60
        search = InputSplitting(bounder, query.first_boxes(), nothing, deadline, clips=False)
        search.patience = Fixed(candidates)
        search.begin()
        search.next_comparison = torch.inf
        search.batch.size = search.batch.most = 2
        search.run()
        assert search.is_proved
        counts.append(search.counts.opened)
    assert 1 < counts[0] < counts[1], counts


def test_points_have_nothing_to_halve() -> None:
    x = torch.zeros(3, 2, dtype=torch.float64)
    points = Boxes(x, x, torch.zeros(3, dtype=torch.int64), torch.zeros(3), torch.zeros(3, 2))

    def bounds(_: Boxes) -> Lines:
        raise AssertionError("nothing is looked at")

    assert looked_ahead(points, bounds, 8) is points
