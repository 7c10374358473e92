"""Branch and bound over boxes of inputs.

A batch of the worst boxes is halved along the coordinates that matter most, several times if the
batch is small; the children are bounded together, clipped, and kept if they are not decided.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from boundlab.errors import BoundlabError, MemoryLimit, TimeLimit, UnsupportedOperator
from boundlab.methods.deadline import until
from boundlab.verify.bound import Bounder, Lines
from boundlab.verify.clip import clip
from boundlab.verify.counts import Counts
from boundlab.verify.pool import Boxes, Pool

METHODS = {"crown-ibp": 0.2, "forward+backward": 0.2, "crown": 0.5}
"""From cheap to tight, with the share of the time that each may take for the first boxes."""
FORWARD = 100
"""Inputs that move up to which forward mode, whose cost grows with them, is tried."""
SMALLEST, LARGEST = 16, 4096
"""How many children are bounded at once."""
ROUND_SECONDS = 0.3
"""How long bounding a batch should take."""
BATCH = 64
"""Children of the first round."""
RUNNERS = 16
"""Boxes on which methods are compared."""
RACE_SECONDS = 0.25
AGAIN = 20
"""Methods are compared again after so many rounds, and twice as many as before."""

Try = Callable[[Tensor, Tensor], bool]
"""Whether one of some inputs (points, in), each for a clause (points,), is a counterexample, or
another reason to end the search."""


class InputSplitting:
    """The search over boxes of inputs. try_points: is shown where lines are least. method: of
    bounds; None finds out which one serves best."""

    def __init__(
        self,
        bounder: Bounder,
        first: Boxes,
        try_points: Try,
        deadline: float,
        method: str | None = None,
        clips: bool = True,
    ) -> None:
        self.bounder = bounder
        self.pool = Pool(first)
        self.try_points = try_points
        self.deadline = deadline
        self.clips = clips
        self.counts = Counts(opened=len(first))
        self.methods = list(METHODS)
        if len(first) and int((first.upper > first.lower).sum(1).max()) > FORWARD:
            self.methods.remove("forward+backward")
        self.method = method or self.methods[-1]
        self.batch = BATCH
        self.rounds = 0
        self.next_race = 2 if method is None else sys.maxsize
        self.generator = torch.Generator().manual_seed(0)
        self.found = False

    @property
    def is_over(self) -> bool:
        return (
            self.found
            or not len(self.pool)
            or self.pool.is_full
            or time.monotonic() > self.deadline
        )

    @property
    def is_proved(self) -> bool:
        """Whether every box that was opened is decided, and no counterexample was found."""
        return not self.found and not len(self.pool) and self.counts.add_up(0)

    def begin(self) -> Boxes:
        """Bound the boxes as they are, by one method after the other, each within a share of the
        time; a method that takes longer is left out from here on."""
        usable = []
        for method in self.methods:
            if not len(self.pool):
                return self.pool.boxes
            left = self.deadline - time.monotonic()
            boxes = self.pool.pick(len(self.pool))
            before = replace(self.counts)
            self.method = method
            try:
                with until(time.monotonic() + METHODS[method] * left):
                    found = self._bounded_cases(boxes)
                self.pool.put(found)
                usable.append(method)
            except (TimeLimit, MemoryLimit, UnsupportedOperator):
                self.counts = before
                self.pool.put(boxes)
        self.methods = usable or self.methods[:1]
        self.method = self.methods[-1]
        return self.pool.boxes

    @property
    def is_stuck(self) -> bool:
        """Whether more time would not help: the pool is full."""
        return self.pool.is_full

    def run(self, seconds: float = math.inf) -> None:
        """Search until all is decided, or for some seconds."""
        end = time.monotonic() + seconds
        while not self.is_over and time.monotonic() < end:
            if self.rounds >= self.next_race and len(self.pool) >= RUNNERS:
                self.race()
                self.next_race = 2 * self.rounds + AGAIN
            else:
                self.round()

    def refute(self, clause: int) -> None:
        """Another search has shown that a clause has no counterexample: its open boxes count as
        proved."""
        self.counts.proved += self.pool.drop(clause)

    def round(self) -> None:
        """Split the worst boxes and bound what they are split into."""
        self.rounds += 1
        parents = self.pool.pick(max(self.batch // 2, 1))
        children = halved(parents, self.batch)
        start = time.monotonic()
        before = replace(self.counts)
        try:
            with until(self.deadline):
                left = self._bounded(children)
        except (MemoryLimit, TimeLimit):
            self.batch = max(self.batch // 4, 2)
            self.counts = before
            self.pool.put(parents)
            return
        self.counts.split += len(parents)
        self.counts.opened += len(children)
        self._adapt(len(children), time.monotonic() - start)
        self.pool.put(left)

    def _adapt(self, count: int, seconds: float) -> None:
        """Make batches as large as the time for a round allows."""
        if seconds > 2 * ROUND_SECONDS:
            self.batch = max(self.batch // 2, SMALLEST)
        elif seconds < ROUND_SECONDS / 2 and count >= self.batch // 2:
            self.batch = min(2 * self.batch, LARGEST)

    def race(self) -> None:
        """Let the methods search some boxes, each for as long; the one that decides the largest
        share of their volume a second goes on, the tightest if none decides any."""
        boxes = self.pool.draw(RUNNERS, self.generator)
        best, best_rate = None, -1.0
        for method in reversed(self.methods):
            start = time.monotonic()
            deadline = min(start + RACE_SECONDS, self.deadline)
            runner = InputSplitting(
                self.bounder, boxes, self.try_points, deadline, method, self.clips
            )
            runner.batch = BATCH
            try:
                runner.run()
            except BoundlabError:
                continue
            decided = boxes.volume - runner.pool.boxes.volume
            rate = decided / max(time.monotonic() - start, 1e-6)
            if rate > best_rate:
                best, best_rate = runner, rate
            self.found = self.found or runner.found
            if self.found or deadline == self.deadline:
                break
        if best is None:
            self.pool.put(boxes)
            return
        self.method = best.method
        self.counts.follow(best.counts, len(boxes))
        self.pool.put(best.pool.boxes)

    def _bounded_cases(self, boxes: Boxes) -> Boxes:
        """What is left of the first boxes, of which clauses of a case have about the same."""
        ends = boxes.lower, boxes.upper, boxes.clause
        found = [
            self._undecided(boxes.take(chosen), lines)
            for chosen, lines in self.bounder.lines_of_cases(*ends, self.method)
        ]
        return Boxes.join(found)

    def _bounded(self, boxes: Boxes) -> Boxes:
        """What is left of boxes, clipped."""
        lines = self.bounder.lines(boxes.lower, boxes.upper, boxes.clause, self.method)
        return self._undecided(boxes, lines)

    def _undecided(self, boxes: Boxes, lines: Lines) -> Boxes:
        """Boxes that their lines do not prove, clipped by them; what is decided is counted."""
        proved = (lines.least(boxes.lower, boxes.upper) > 0).any(1)
        self.counts.proved += int(proved.sum())
        # a proof that the model itself contradicts is none
        self._try(boxes.take(proved), lines.take(proved))
        left = (~proved).nonzero().flatten()
        return self._clipped(boxes.take(left), lines.take(left))

    def _try(self, boxes: Boxes, lines: Lines) -> Tensor:
        """Try where the rows that are nearest to a proof are least; all least values (domains,
        rows)."""
        values = lines.least(boxes.lower, boxes.upper)
        if len(boxes):
            corners = lines.minimiser(values.argmax(1), boxes.lower, boxes.upper)
            self.found = self.found or self.try_points(corners, boxes.clause)
        return values

    def _clipped(self, boxes: Boxes, lines: Lines) -> Boxes:
        before = boxes.upper - boxes.lower
        if self.clips:
            lower, upper, empty = clip(lines.a, lines.b, boxes.lower, boxes.upper)
            self.counts.empty += int(empty.sum())
            left = (~empty).nonzero().flatten()
            boxes = replace(boxes, lower=lower, upper=upper).take(left)
            lines, before = lines.take(left), before[left]
        if not len(boxes):
            return boxes
        values = self._try(boxes, lines)
        width = boxes.upper - boxes.lower
        kept = torch.where((width > 0) & (before > 0), width / before, 1)
        return replace(
            boxes,
            bound=torch.maximum(boxes.bound, values.amax(1)),
            score=(lines.a.abs().sum(1) * width).nan_to_num(0.0, 0.0, 0.0),
            depth=boxes.depth - kept.log2().sum(1),
        )


def halved(boxes: Boxes, count: int) -> Boxes:
    """Every box in 2, 4, 8, ... parts, as many as make about ``count``, along the coordinates with
    the largest scores."""
    levels = 1
    while len(boxes) * 2 ** (levels + 1) <= count:
        levels += 1
    for _ in range(levels):
        movable = boxes.upper > boxes.lower
        score = torch.where(movable, boxes.score, -1.0)
        place = score.argmax(1, keepdim=True)
        # nothing matters: halve what is widest
        flat = score.gather(1, place) <= 0
        widest = (boxes.upper - boxes.lower).argmax(1, keepdim=True)
        place = torch.where(flat, widest, place)
        low, up = boxes.lower.gather(1, place), boxes.upper.gather(1, place)
        middle = low + (up - low) / 2
        rest = boxes.score.scatter(1, place, boxes.score.gather(1, place) / 2)
        depth = boxes.depth + 1
        left = replace(boxes, upper=boxes.upper.scatter(1, place, middle), score=rest, depth=depth)
        right = replace(boxes, lower=boxes.lower.scatter(1, place, middle), score=rest, depth=depth)
        boxes = Boxes.join([left, right])
    return boxes
