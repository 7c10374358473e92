"""Sizes of trees from random descents."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boundlab.verify.boxes import Boxes, Judgement
from boundlab.verify.estimate import mean_size, tree_sizes, typical_size

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
    found = tree_sizes(intervals(20000), judge, generator, time.monotonic() + 60)
    size = size_of_tree(0.0, 1.0)
    assert size > 30 and abs(mean_size(found) - size) < 0.05 * size
    assert typical_size(found) < mean_size(found)


def test_nothing_ends_in_no_time() -> None:
    generator = torch.Generator().manual_seed(0)
    found = tree_sizes(intervals(4), judge, generator, time.monotonic() - 1)
    assert mean_size(found) == math.inf and typical_size(found) == math.inf


def test_descents_that_have_not_ended() -> None:
    sizes = torch.tensor([2.0, 2.0, 8.0, math.inf]).double()
    assert mean_size(sizes) == 4 * 4 / 3
    assert typical_size(sizes) == pytest.approx((2 * 2 * 8 * 80) ** 0.25)
