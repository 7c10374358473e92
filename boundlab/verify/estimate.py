"""How large a tree of boxes becomes, from random descents (Knuth 1975).

From a box one of its undecided children is followed at random, and so on until none is left. With
b_1, b_2, ... undecided children on the way, 2 + b_1 (2 + b_2 (2 + ...)) has the number of all
descendants as its expectation, though hardly any of them are bounded.

Where descents do not come to an end in time, two methods are compared by what they make of some
boxes in the same time: the tighter one of the boxes, the cheaper one of the parts that they are
split into.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from boundlab.verify.boxes import Boxes, Judgement, halved

Judge = Callable[[Boxes], Judgement]


def tree_sizes(boxes: Boxes, judge: Judge, generator: torch.Generator, deadline: float) -> Tensor:
    """The number of descendants of each box as one descent has it: (boxes,). Infinite for those
    that have not come to an end when the time is over. judge: of boxes, what lines say of their
    halves, first all the lower ones."""
    sizes = torch.zeros(len(boxes), dtype=torch.float64)
    weight, owner = torch.ones_like(sizes), torch.arange(len(boxes))
    while len(boxes) and time.monotonic() < deadline:
        sizes[owner] += 2 * weight
        found = judge(boxes)
        left, right = found.undecided.reshape(2, -1)
        coin = torch.rand(len(left), generator=generator) < 0.5
        goes_right = right & (~left | coin)
        place = torch.arange(len(left)) + len(left) * goes_right
        on = left | right
        weight = (weight * (left.double() + right.double()))[on]
        boxes, owner = found.boxes.take(place[on]), owner[on]
    sizes[owner] = torch.inf
    return sizes


def mean_size(sizes: Tensor) -> float:
    """The mean, where descents that have ended stand for the others; infinite if none has."""
    ended = sizes[sizes.isfinite()]
    if not len(ended):
        return math.inf
    return float(ended.sum()) / len(ended) * len(sizes) / len(ended)


def typical_size(sizes: Tensor) -> float:
    """The geometric mean, which tells methods apart where few large trees would decide the mean.
    Descents that have not ended count as ten times the largest that has."""
    ended = sizes[sizes.isfinite()]
    if not len(ended):
        return math.inf
    return float(sizes.clamp(max=10 * float(ended.max())).log().mean().exp())


def pays_to_split(boxes: Boxes, tight: Judge, cheap: Judge) -> bool:
    """Whether a cheap method raises the bounds of most boxes further than a tight one does, if it
    gets them in as many parts as it can bound in the same time."""
    start = time.monotonic()
    by_tight = _bounds(tight(boxes))
    middle = time.monotonic()
    by_cheap = _bounds(cheap(boxes))
    ratio = (middle - start) / (time.monotonic() - middle)
    if ratio >= 2:
        parts = halved(boxes, int(ratio * len(boxes)))
        # the parts of box i are at i, i + count, ...
        by_cheap = _bounds(cheap(parts)).reshape(-1, len(boxes)).amin(0)
    return bool((by_cheap > by_tight).double().mean() > 0.5)


def _bounds(found: Judgement) -> Tensor:
    """The bounds of boxes, infinite where they are decided."""
    return torch.where(found.undecided, found.boxes.bound, torch.inf)
