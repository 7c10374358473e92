"""One search over boxes of inputs, on several processors: its open boxes go to workers, and what
these leave open comes back and is dealt out again.

The boxes cover all of the inputs that are not decided yet. A worker gives back what it has neither
proved nor found empty, so that nothing is done twice, and the property holds once nothing is left.
All proofs leave the same room for what the model rounds: where a worker sees it round more than was
measured before, all of it is searched again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from boundlab.attacks import Attack
from boundlab.attacks.attack import has_one_sample
from boundlab.attacks.targets import Target
from boundlab.scaling.ray_pool import Calls, Ended, Pool, import_ray
from boundlab.specs.property import Property
from boundlab.verify.boxes import Boxes
from boundlab.verify.portfolio import Given, Portfolio

LEAST_SECONDS, SHARE = 5.0, 0.3
"""How long a worker keeps its boxes: for so many seconds, or a share of the time that the search
has taken so far. It needs about one to begin."""


@dataclass(frozen=True, eq=False)
class Searched:
    """What a worker has made of its boxes. left: those that are open; None if some are missing."""

    left: Given | None
    found: Attack | None
    domains: int


class ShippedBoxes:
    """The boxes of a property that are waiting, at work and lost. first: the search that was
    stopped; given: what it has left."""

    def __init__(self, first: Portfolio, given: Given, deadline: float, pool: Pool) -> None:
        self.model, self.prop, self.deadline = first.model, first.prop, deadline
        self.whole = first.query.first_boxes()
        self.workers = pool.most or max(pool.processors, 1)
        self.begun = time.monotonic()
        self.waiting, self.method, self.slack = given.boxes, given.method, given.slack
        self.working: dict[int, Given] = {}
        self.lost: list[Boxes] = []
        self.found: Attack | None = None
        self.domains = self.shipments = 0

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    @property
    def parts(self) -> list[Boxes]:
        """All boxes that are not decided."""
        return [self.waiting, *(given.boxes for given in self.working.values()), *self.lost]

    @property
    def open(self) -> int:
        return sum(map(len, self.parts))

    @property
    def bound(self) -> float:
        """The least bound of what is open."""
        return min((float(part.bound.min()) for part in self.parts if len(part)), default=math.inf)

    @property
    def said(self) -> str:
        found = f"{self.domains} domains, {self.open} open, {self.shipments} shipments"
        if self.lost:
            found += f", {sum(map(len, self.lost))} lost"
        return f"{found}, {self.workers} workers"

    def run(self, pool: Pool) -> None:
        """Search until all boxes are decided, one holds a counterexample, or the time is up."""
        sent = [pool.put(self.model), pool.put(self.prop)]
        with Calls(pool, search_boxes, self.workers) as calls:
            while (len(self.waiting) or self.working) and self.found is None:
                if self.seconds_left <= 0:
                    break
                self._fill(calls, sent)
                ended = calls.next()
                if ended is not None:
                    self._note(ended)

    def _fill(self, calls: Calls, sent: Sequence[Any]) -> None:
        """Deal the waiting boxes out to the workers that have none, bad ones to each."""
        idle = min(self.workers - calls.count, len(self.waiting))
        elapsed = time.monotonic() - self.begun
        seconds = min(max(LEAST_SECONDS, SHARE * elapsed), self.seconds_left)
        if idle <= 0 or seconds <= 0:
            return
        order = self.waiting.bound.argsort()
        for worker in range(idle):
            share = Given(self.waiting.take(order[worker::idle]), self.method, self.slack)
            self.working[calls.add(sent, share, seconds)] = share
            self.shipments += 1
        self.waiting = self.waiting.take(order[:0])

    def _note(self, ended: Ended) -> None:
        given = self.working.pop(ended.number)
        searched: Searched | None = ended.value
        if searched is not None:
            self.domains += searched.domains
            if searched.found is not None:
                self.found = replayed(self.model, self.prop, searched.found)
        if given.slack is not self.slack:
            return  # all of it is searched again
        if searched is None or searched.left is None:
            self.lost.append(given.boxes)
            return
        left = searched.left
        if bool((left.slack > self.slack).any()):
            self.slack, self.waiting, self.lost = left.slack, self.whole, []
            return
        self.method = left.method
        self.waiting = Boxes.join([self.waiting, left.boxes])


def target_of(model: nn.Module, x: Tensor) -> Target:
    """The model as a function of inputs of the shape of a region's."""
    return Target(model, x, not has_one_sample(x))


@torch.no_grad()
def replayed(model: nn.Module, prop: Property, found: Attack) -> Attack | None:
    """A counterexample that a worker has found, as the model here has it; None if it is none."""
    x = found.inputs
    outputs = target_of(model, x)(x)
    if not bool(prop.violated(x, outputs).all()):
        return None
    return Attack(x, outputs, torch.tensor([True]), found.margin)


@torch.no_grad()
def search_boxes(sent: Sequence[Any], given: Given, seconds: float) -> Searched:
    """Search boxes for some seconds."""
    model, prop = import_ray().get(list(sent))
    search = Portfolio(model, prop, time.monotonic() + seconds)
    search.go_on(given)
    if not search.has_begun:  # the time was not enough
        return Searched(given, None, 0)
    return Searched(search.left, search.found, search.domains)
