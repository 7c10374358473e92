"""Sizes of trees from random descents."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boundlab.verify.boxes import Boxes, Judgement, halved
from boundlab.verify.estimate import mean_size, pays_to_split, tree_sizes, typical_size

SMALL = 1 / 64


def intervals(count: int) -> Boxes:
    """The interval [0, 1], several times."""
    ends = torch.zeros(count, 1).double(), torch.ones(count, 1).double()
    clause = torch.zeros(count, dtype=torch.int64)
    return Boxes(*ends, clause, torch.zeros(count).double(), ends[1])


def needs_depth(boxes: Boxes) -> Tensor:
    """Near 0 intervals are decided when they are small, elsewhere at once."""
    width = (boxes.upper - boxes.lower)[:, 0]
    return (boxes.lower[:, 0] < 0.2) & (width > SMALL)


def judge(boxes: Boxes) -> Judgement:
    undecided = needs_depth(boxes)
    return Judgement(~undecided, torch.zeros_like(undecided), replace(boxes, score=boxes.score))


def judge_halves(boxes: Boxes) -> Judgement:
    return judge(halved(boxes, 1))


def size_of_tree(low: float, up: float) -> int:
    """How many descendants there are, one by one."""
    found = 0
    for half in ((low, (low + up) / 2), ((low + up) / 2, up)):
        found += 1
        if half[0] < 0.2 and half[1] - half[0] > SMALL:
            found += size_of_tree(*half)
    return found


def test_mean_is_the_size() -> None:
    generator = torch.Generator().manual_seed(0)
    found = tree_sizes(intervals(20000), judge_halves, generator, time.monotonic() + 60)
    size = size_of_tree(0.0, 1.0)
    assert size > 30 and abs(mean_size(found) - size) < 0.05 * size
    assert typical_size(found) < mean_size(found)


def test_nothing_ends_in_no_time() -> None:
    generator = torch.Generator().manual_seed(0)
    found = tree_sizes(intervals(4), judge_halves, generator, time.monotonic() - 1)
    assert mean_size(found) == math.inf and typical_size(found) == math.inf


def test_descents_that_have_not_ended() -> None:
    sizes = torch.tensor([2.0, 2.0, 8.0, math.inf]).double()
    assert mean_size(sizes) == 4 * 4 / 3
    assert typical_size(sizes) == pytest.approx((2 * 2 * 8 * 80) ** 0.25)


@pytest.mark.parametrize(
    ("looser", "seconds", "pays"), [(0.5, 1.0, True), (4.0, 1.0, False), (4.0, 64.0, True)]
)
def test_cheap_methods_pay_if_parts_are_bounded_better_in_the_same_time(
    monkeypatch: pytest.MonkeyPatch, looser: float, seconds: float, pays: bool
) -> None:
    """Bounds fall with the square of the width. The tight method takes some seconds a box, the
    cheap one a single second."""
    now = 0.0
    parts = []

    def bounded(boxes: Boxes, scale: float, cost: float) -> Judgement:
        nonlocal now
        now += cost * len(boxes)
        parts.append(len(boxes))
        width = (boxes.upper - boxes.lower)[:, 0]
        open_ = torch.ones(len(boxes), dtype=torch.bool)
        found = replace(boxes, bound=-scale * width**2, score=boxes.upper - boxes.lower)
        return Judgement(~open_, ~open_, found)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    tight = lambda boxes: bounded(boxes, 1.0, seconds)
    cheap = lambda boxes: bounded(boxes, looser, 1.0)
    assert pays_to_split(intervals(3), tight, cheap) is pays
    assert parts[:2] == [3, 3] and parts[2:] == [3 * seconds] * (seconds > 1)
