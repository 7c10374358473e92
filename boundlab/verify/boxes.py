"""Boxes of inputs: split, and judged by lines below the rows of their clauses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.verify.clip import clip
from boundlab.verify.lines import Lines

LEAST_SHARE = 0.01
"""What a coordinate that no line depends on counts as beside the one that moves the lines most."""
LOPSIDED = 64.0
"""How many times narrower than another, of their first widths, a coordinate may become before it
counts for less."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Subdomains: lower and upper (domains, in), the clause that each is for, the best lower bound
    of its rows that is known, and how much splitting each coordinate would do (domains, in)."""

    lower: Tensor
    upper: Tensor
    clause: Tensor
    bound: Tensor
    score: Tensor

    def __len__(self) -> int:
        return len(self.clause)

    def take(self, chosen: Tensor) -> Boxes:
        return Boxes(*(part[chosen] for part in self._parts()))

    def _parts(self) -> list[Tensor]:
        return [self.lower, self.upper, self.clause, self.bound, self.score]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts())

    @staticmethod
    def join(parts: list[Boxes]) -> Boxes:
        columns = zip(*(part._parts() for part in parts), strict=True)
        return Boxes(*(torch.cat(column) for column in columns))


@dataclass(frozen=True, eq=False)
class Judgement:
    """What lines say of boxes: which are proved and which empty, (domains,); the boxes, clipped,
    with their bounds and scores."""

    proved: Tensor
    empty: Tensor
    boxes: Boxes

    @property
    def undecided(self) -> Tensor:
        return ~(self.proved | self.empty)


def judge(boxes: Boxes, lines: Lines, clips: bool, spans: Tensor) -> Judgement:
    """A box is proved if a line is positive on it, and empty if nothing of it is left where all
    lines are at most 0. clips: whether boxes are shrunk to where they are. spans (domains, in): the
    widths of the boxes that they are parts of."""
    proved = (lines.least(boxes.lower, boxes.upper) > 0).any(1)
    empty = torch.zeros_like(proved)
    if clips:
        lower, upper, empty = clip(lines.a, lines.b, boxes.lower, boxes.upper)
        boxes = replace(boxes, lower=lower, upper=upper)
    judged = replace(
        boxes,
        bound=torch.maximum(boxes.bound, lines.least(boxes.lower, boxes.upper).amax(1)),
        score=scores(lines, boxes.upper - boxes.lower, spans),
    )
    return Judgement(proved, empty & ~proved, judged)


def scores(lines: Lines, widths: Tensor, spans: Tensor) -> Tensor:
    """How much splitting each coordinate would do: (domains, in).

    A coordinate counts by how far it moves the lines over its width. Relaxations may depend on one
    that moves no line: the best line below x^2 + sin(4 x) over [-2, 2] is flat. So each counts a
    little by its width, and less once it was halved far more often than another: every coordinate
    that moves has its turn.
    """
    moved = (lines.a.abs().sum(1) * widths).nan_to_num(0.0, 0.0, 0.0)
    wide = (widths / spans).nan_to_num(0.0, 0.0, 0.0)
    share, rest = (part / _most(part) for part in (moved, wide))
    return (share + LEAST_SHARE * rest) * (LOPSIDED * rest).clamp(max=1.0)


def _most(part: Tensor) -> Tensor:
    """The largest of each row, or the smallest number."""
    if not part.shape[1]:
        return torch.ones(len(part), 1)
    return part.amax(1, keepdim=True).clamp(min=torch.finfo(part.dtype).tiny)


def halved(boxes: Boxes, count: int) -> Boxes:
    """Every box in 2, 4, 8, ... parts, as many as make about ``count``, along the coordinates with
    the largest scores: first all the lower parts of the last split, then all the upper ones."""
    levels = 1
    while len(boxes) * 2 ** (levels + 1) <= count:
        levels += 1
    for _ in range(levels):
        movable = boxes.upper > boxes.lower
        score = torch.where(movable, boxes.score, -1.0)
        place = score.argmax(1, keepdim=True)
        rest = boxes.score.scatter(1, place, boxes.score.gather(1, place) / 2)
        boxes = Boxes.join(list(halves(replace(boxes, score=rest), place)))
    return boxes


def halves(boxes: Boxes, place: Tensor) -> tuple[Boxes, Boxes]:
    """The lower and the upper half of boxes along a coordinate of each: (boxes, 1)."""
    low, up = boxes.lower.gather(1, place), boxes.upper.gather(1, place)
    middle = low + (up - low) / 2
    left = replace(boxes, upper=boxes.upper.scatter(1, place, middle))
    return left, replace(boxes, lower=boxes.lower.scatter(1, place, middle))
