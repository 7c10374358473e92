"""Which input to halve: a look ahead by cheap bounds.

The slope of a line times the width of a box says how far an input moves the line. It does not say
how much the relaxations gain once the input moves less, which may be most of what a split does. So
both halves of a box along each of the inputs that seem to matter most are bounded by a cheap
method, and with the least values v, v_1, v_2 of the best row over the box and its halves

    gain = 1 - (loss(v_1) + loss(v_2)) / (2 loss(v)),        loss(v) = max(-v, 0)

is the share of what lacks that the split makes up for. An input counts by its gain times its share
of the slopes: by one alone searches get stuck, by gains where no single split gains anything, by
slopes where the input that moves the line is not the one that loosens it. A small number is added
to both, so that neither is ignored where it is 0. Whatever is chosen, halves cover the box.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from boundlab.verify.boxes import Boxes, halves
from boundlab.verify.lines import Lines

CANDIDATES = 8
"""Inputs of a box that are looked at, at most."""
FLOOR = 0.01
"""What a gain and a share count as at least."""
PATIENCE = 2.0
"""How many times as long as bounding what comes of it looking ahead may take."""

ENOUGH = 1.0
"""Seconds of both after which that is judged: the first calls of a network take longer."""

Bounds = Callable[[Boxes], Lines]


def looked_ahead(boxes: Boxes, bounds: Bounds, candidates: int) -> Boxes:
    """Boxes whose scores count what halving inputs gains. bounds: the cheap ones."""
    most = boxes.score.amax(1, keepdim=True)
    share = boxes.score / most.clamp(min=torch.finfo(most.dtype).tiny)
    movable = boxes.upper > boxes.lower
    count = min(candidates, int(movable.sum(1).amax()))
    if not count:  # points, in which there is nothing to halve
        return boxes
    place = torch.where(movable, share, -1.0).topk(count, 1).indices  # (boxes, candidates)
    split = [half for one in place.split(1, 1) for half in halves(boxes, one)]
    ends = Boxes.join([boxes, *split])
    least = bounds(ends).least(ends.lower, ends.upper).amax(1).reshape(1 + 2 * count, len(boxes))
    loss = (-least).clamp(min=0.0)
    after = loss[1:].reshape(count, 2, len(boxes)).sum(1)
    gain = (1 - after / (2 * loss[0])).nan_to_num(0.0, 0.0, 0.0).clamp(0.0, 1.0)
    gains = torch.zeros_like(share).scatter(1, place, gain.T)
    score = (gains + FLOOR) * (share + FLOOR)
    return replace(boxes, score=torch.where(most > 0, score, boxes.score))


class Patience:
    """How many inputs are looked at: fewer where looking ahead takes long."""

    def __init__(self) -> None:
        self.candidates = CANDIDATES
        self.looking = self.bounding = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing is to choose from."""
        return self.candidates < 2

    def follow(self, looking: float, bounding: float) -> None:
        """Learn how many seconds looking ahead took, and bounding what came of it."""
        self.looking += looking
        self.bounding += bounding
        if self.looking + self.bounding < ENOUGH:
            return
        if self.looking > PATIENCE * self.bounding:
            self.candidates //= 2
        self.looking = self.bounding = 0.0
