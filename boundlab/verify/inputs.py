"""Branch and bound over boxes of inputs.

A batch of the worst boxes is halved along the coordinates that matter most, several times if the
batch is small; the children are bounded together, clipped, and kept if they are not decided.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from boundlab.errors import BoundlabError, MemoryLimit, TimeLimit, UnsupportedOperator
from boundlab.methods.deadline import until
from boundlab.verify.batch import BatchSize
from boundlab.verify.bound import FORWARD, Bounder
from boundlab.verify.boxes import Boxes, Judgement, halved, judge
from boundlab.verify.counts import Counts
from boundlab.verify.estimate import mean_size, pays_to_split, tree_sizes, typical_size
from boundlab.verify.lines import Lines
from boundlab.verify.lookahead import Patience, looked_ahead
from boundlab.verify.pool import Pool
from boundlab.verify.query import Try

METHODS = {"crown-ibp": 0.2, "forward+backward": 0.2, "forward+crown": 0.5, "crown": 0.5}
"""From cheap to tight, with the share of the time that each may take for the first boxes."""
CHEAP, TIGHT = "forward+backward", "forward+crown"
FORWARD_METHODS = {CHEAP, TIGHT}
SMALLEST, LARGEST = 16, 4096
"""How many children are bounded at once."""
ROUND_SECONDS, ROUND_SHARE = 0.3, 0.05
"""How long bounding a batch should take, and the first one may, as a share of what is left."""
BATCH = 64
"""Children of the first round."""
DIVES, WORST = 64, 16
"""Boxes from which methods are compared: by the trees below them, drawn at random, and by their
bounds, the worst ones."""
SLOW = 10.0
"""How many times longer than allowed one level of these may seem to take: one box alone, the first
time, takes many times as long as one of many."""
COMPARE_SHARE = 0.1
"""Share of the time that is left that a comparison may take."""
CHEAPER = 3.0
"""How many times faster a looser method must seem: samples seldom see the parts of large trees in
which most of their boxes lie."""
LOOKED_AT = 1 << 13
"""Inputs of boxes, all together, that are looked ahead at in one pass: the deadline is looked at
between passes and their steps."""
ALONE_SECONDS = 1.0
"""How long the tightest method is tried before methods are compared."""
AGAIN = 8
"""Methods are compared again after so many times what that took, and twice as many then."""


@dataclass(frozen=True)
class Estimate:
    """How many seconds the search of a box by a method takes: on average, and typically."""

    method: str
    mean: float
    typical: float


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
        self.spans = _spans(first)
        self.counts = Counts(opened=len(first))
        movable = (first.upper > first.lower).sum(1).tolist()
        left_out = {"crown"} if max(movable, default=0) <= FORWARD else FORWARD_METHODS
        self.methods = [name for name in METHODS if name not in left_out]
        if method is not None:
            self.methods = [method]
        self.method = self.methods[-1]
        self.seconds_per_box = dict.fromkeys(METHODS, 0.0)
        self.batch = BatchSize(BATCH, SMALLEST, LARGEST, ROUND_SECONDS)
        self.patience = Patience()
        self.next_comparison = -math.inf
        if method is not None:
            self.next_comparison = math.inf
        self.compared = time.monotonic()
        self.expected_end = math.inf
        self.again = AGAIN
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
            before, start = replace(self.counts), time.monotonic()
            self.method = method
            try:
                with until(start + METHODS[method] * left):
                    found = self._bounded_cases(boxes)
                self.pool.put(found)
                usable.append(method)
                self.seconds_per_box[method] = (time.monotonic() - start) / len(boxes)
            except (TimeLimit, MemoryLimit, UnsupportedOperator):
                self.counts = before
                self.pool.put(boxes)
        self.methods = usable or self.methods[:1]
        self._use(self.methods[-1])
        left = self.deadline - time.monotonic()
        if SMALLEST * self.seconds_per_box[self.method] < COMPARE_SHARE * left:
            self.next_comparison = time.monotonic() + ALONE_SECONDS
        return self.pool.boxes

    def go_on(self, boxes: Boxes, method: str) -> Boxes:
        """Take over boxes that another search of the same property has bounded by a method."""
        self.pool = Pool(boxes)
        self.counts = Counts(opened=len(boxes))
        self._use(method)
        self.next_comparison = time.monotonic() + ALONE_SECONDS
        return boxes

    def _use(self, method: str) -> None:
        """Go on by a method, with as many boxes at once as it can bound in a small share of the
        time that is left; what one box alone took is an upper limit."""
        self.method = method
        self.batch.size = BATCH
        seconds = max(ROUND_SHARE * (self.deadline - time.monotonic()), ROUND_SECONDS)
        if self.seconds_per_box[method] > 0:
            self.batch.size = max(min(int(seconds / self.seconds_per_box[method]), BATCH), 2)

    @property
    def expected_seconds(self) -> float:
        """How much longer the search takes, as far as samples tell: at least as long as it takes
        since they were drawn; infinite if nothing is known."""
        now = time.monotonic()
        return max(self.expected_end - now, now - self.compared)

    @property
    def is_stuck(self) -> bool:
        """Whether more time would not help: the pool is full."""
        return self.pool.is_full

    def run(self, seconds: float = math.inf) -> None:
        """Search until all is decided, or for some seconds."""
        end = time.monotonic() + seconds
        while not self.is_over and time.monotonic() < end:
            if time.monotonic() >= self.next_comparison:
                self.compare()
            else:
                self.round()

    def compare(self) -> None:
        """Go on by the method that would be done first, as far as samples tell; by the one that
        makes most of some open boxes where they do not tell how long that takes."""
        start = time.monotonic()
        seconds = COMPARE_SHARE * (self.deadline - start) / len(self.methods)
        best = self._estimate(self.methods[-1], seconds)
        for method in reversed(self.methods[:-1]):
            if not math.isfinite(best.typical):
                best = replace(best, method=self._locally_best(seconds))
                break
            other = self._estimate(method, seconds)
            if CHEAPER * other.typical < best.typical:
                best = other
        self._use(best.method)
        now = time.monotonic()
        self.compared = now
        self.expected_end = now + best.mean * len(self.pool)
        self.next_comparison = now + self.again * (now - start)
        self.again *= 2

    def _estimate(self, method: str, seconds: float) -> Estimate:
        """How long the search of an open box by a method takes, as sampled in some seconds."""
        count, start = 0, time.monotonic()
        dives = DIVES
        if 2 * dives * self.seconds_per_box[method] > SLOW * seconds:
            dives = 2
        boxes = self.pool.draw(dives, self.generator)

        def bounded(parents: Boxes) -> Judgement:
            nonlocal count
            children = halved(self._looked_ahead(parents, method), 1)
            count += len(children)
            return self._judged(children, method)

        try:
            with until(start + 2 * seconds):
                sizes = tree_sizes(boxes, bounded, self.generator, start + seconds)
        except BoundlabError:
            return Estimate(method, math.inf, math.inf)
        per_box = (time.monotonic() - start) / max(count, 1)
        return Estimate(method, per_box * mean_size(sizes), per_box * typical_size(sizes))

    def _judged(self, boxes: Boxes, method: str) -> Judgement:
        ends = boxes.lower, boxes.upper, boxes.clause
        return self._judge(boxes, self.bounder.lines(*ends, method))

    def _judge(self, boxes: Boxes, lines: Lines) -> Judgement:
        return judge(boxes, lines, self.clips, self.spans[boxes.clause])

    def _locally_best(self, seconds: float) -> str:
        """The method that raises the bounds of the worst boxes furthest in the same time; the
        tightest one if that cannot be told in some seconds."""
        best = self.methods[-1]
        boxes = self.pool.worst(WORST)
        for method in reversed(self.methods[:-1]):
            tight, cheap = (partial(self._judged, method=name) for name in (best, method))
            try:
                with until(time.monotonic() + len(self.methods) * seconds):
                    if pays_to_split(boxes, tight, cheap):
                        best = method
            except BoundlabError:
                continue
        return best

    def refute(self, clause: int) -> None:
        """Another search has shown that a clause has no counterexample: its open boxes count as
        proved."""
        self.counts.proved += self.pool.drop(clause)

    def round(self) -> None:
        """Split the worst boxes and bound what they are split into."""
        parents = self.pool.pick(max(self.batch.size // 2, 1))
        start = time.monotonic()
        before = replace(self.counts)
        try:
            with until(self.deadline):
                sighted = self._looked_ahead(parents, self.method)
                looked = time.monotonic()
                children = halved(sighted, self.batch.size)
                left = self._bounded(children)
        except (MemoryLimit, TimeLimit):
            self.batch.shrink()
            self.counts = before
            self.pool.put(parents)
            return
        self.counts.split += len(parents)
        self.counts.opened += len(children)
        self.batch.follow(len(children), time.monotonic() - start)
        self.patience.follow(looked - start, time.monotonic() - looked)
        self.pool.put(left)

    def _looked_ahead(self, boxes: Boxes, method: str) -> Boxes:
        """Boxes with scores by cheap bounds of their halves, where there are any that see what the
        method sees: interval arithmetic does not."""
        if method != TIGHT or CHEAP not in self.methods or self.patience.is_over:
            return boxes

        def bounds(parts: Boxes) -> Lines:
            size = max(LOOKED_AT // max(parts.lower.shape[1], 1), SMALLEST)
            ends = (end.split(size) for end in (parts.lower, parts.upper, parts.clause))
            few = zip(*ends, strict=True)
            lines = self.bounder.lines
            return Lines.join([lines(low, up, clause, CHEAP) for low, up, clause in few])

        return looked_ahead(boxes, bounds, self.patience.candidates)

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
        found = self._judge(boxes, lines)
        self.counts.proved += int(found.proved.sum())
        self.counts.empty += int(found.empty.sum())
        # a proof that the model itself contradicts is none
        self._try(boxes.take(found.proved), lines.take(found.proved))
        left = found.boxes.take(found.undecided)
        self._try(left, lines.take(found.undecided))
        return left

    def _try(self, boxes: Boxes, lines: Lines) -> None:
        """Try where the rows that are nearest to a proof are least."""
        if len(boxes):
            values = lines.least(boxes.lower, boxes.upper)
            corners = lines.minimiser(values.argmax(1), boxes.lower, boxes.upper)
            self.found = self.found or self.try_points(corners, boxes.clause)


def _spans(first: Boxes) -> Tensor:
    """The widths of the first box of each clause: (clauses, in)."""
    count = int(first.clause.amax()) + 1 if len(first) else 0
    spans = torch.zeros(count, first.lower.shape[1], dtype=first.lower.dtype)
    spans[first.clause] = first.upper - first.lower
    return spans
