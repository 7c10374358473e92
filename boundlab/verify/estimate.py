"""How large a tree of boxes becomes, from random descents (Knuth 1975).

From a box one of its undecided children is followed at random, and so on until none is left. With
b_1, b_2, ... undecided children on the way, 2 + b_1 (2 + b_2 (2 + ...)) has the number of all
descendants as its expectation, though hardly any of them are bounded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from boundlab.verify.boxes import Boxes, Judgement, halved

Judge = Callable[[Boxes], Judgement]


def tree_size(boxes: Boxes, judge: Judge, generator: torch.Generator, deadline: float) -> float:
    """The mean number of descendants of boxes. If the time is over before all descents have come to
    an end, those that have stand for the others; infinite if none has."""
    weight = torch.ones(len(boxes), dtype=torch.float64)
    total, count = 0.0, len(boxes)
    while len(boxes) and time.monotonic() < deadline:
        total += 2 * float(weight.sum())
        found = judge(halved(boxes, 1))
        left, right = found.undecided.reshape(2, -1)
        coin = torch.rand(len(left), generator=generator) < 0.5
        goes_right = right & (~left | coin)
        place = torch.arange(len(left)) + len(left) * goes_right
        open_ones = left | right
        weight = (weight * (left.double() + right.double()))[open_ones]
        boxes = found.boxes.take(place[open_ones])
    ended = count - len(boxes)
    if not ended:
        return math.inf
    return total / ended
