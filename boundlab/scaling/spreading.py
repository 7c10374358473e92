"""One hard property, spread over processes: a box that is not decided is cut into smaller ones, and
each of them is a property of its own.

Boxes are closed and cut at a number between their ends, so that the two halves cover the whole: a
property holds if and only if it holds on all of them. Which input is cut decides how long that
takes, and nothing else. Where few inputs move, the open boxes of one search are shipped instead
(boundlab/scaling/shipping.py).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from boundlab.attacks import Attack
from boundlab.attacks.targets import Model
from boundlab.defaults import TIMEOUT
from boundlab.errors import ArgumentError
from boundlab.regions import Box, Region
from boundlab.scaling.ray_pool import LOCAL, Calls, Ended, Pool, connected, import_ray
from boundlab.scaling.shipping import ShippedBoxes, replayed, target_of
from boundlab.specs.property import Property
from boundlab.verify.portfolio import Portfolio, as_module
from boundlab.verify.verdict import HOLDS, UNKNOWN, VIOLATED, Stage, Verdict

PIECES = 8
"""Boxes for each worker to begin with: they take different times."""
ALONE = 2.0
"""Seconds for the whole at first: what is decided by then is not worth spreading."""
LEAST_SECONDS = 2.0
"""What a box gets at least: less is spent on beginning."""
POINTS = 16
"""Members of a box at which the model's slopes are looked at."""
OUTPUTS = 32
"""Outputs whose slopes are looked at."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A region, and the number of the part of the property that it is of. bound: how far from a
    proof a search of what it was cut from was."""

    part: int
    region: Region
    bound: float = -math.inf

    @property
    def can_be_cut(self) -> bool:
        if not self.region.is_box:
            return False
        box = self.region.hull()
        middle = box.lower / 2 + box.upper / 2
        return bool(((box.lower < middle) & (middle < box.upper)).any())


def verify_spread(
    model: Model,
    prop: Property,
    timeout: float = TIMEOUT,
    *,
    ray: str = LOCAL,
    workers: int | None = None,
) -> Verdict:
    """Decide whether a property holds, as :func:`boundlab.verify` does, on several processors.

    ray: ``local``, ``auto`` or the address of a Ray cluster, as ``--ray`` has it. workers:
    processes at once; None for one for each CPU. A region that is no box is not cut, and a property
    without any box gains nothing. Ctrl-C goes on as KeyboardInterrupt.
    """
    if not isinstance(prop, Property):
        raise ArgumentError(f"verify_spread takes a property, not {type(prop).__name__}")
    if not timeout > 0:
        raise ArgumentError(f"timeout must be a positive number of seconds, not {timeout}")
    begun = time.monotonic()
    module = as_module(model)
    boxes = any(region.is_box for region in prop.regions)
    first = Portfolio(module, prop, begun + (min(ALONE, timeout) if boxes else timeout))
    first.run()
    alone = first.verdict()
    if alone.status != UNKNOWN or not boxes or time.monotonic() > begun + timeout:
        return alone
    with connected(ray, workers) as pool:
        search: SpreadSearch | ShippedBoxes
        if first.left is not None:
            search = ShippedBoxes(first, first.left, begun + timeout, pool)
        else:
            search = SpreadSearch(module, prop, begun + timeout, pool)
        search.run(pool)
    status = UNKNOWN
    if search.found is not None:
        status = VIOLATED
    elif not search.open:
        status = HOLDS
    stage = Stage("spread", time.monotonic() - begun - alone.seconds, search.said)
    domains = alone.domains + search.domains
    stages = (*alone.stages, stage)
    seconds = time.monotonic() - begun
    return Verdict(status, search.found, search.bound, stages, domains, seconds)


def verified(model: nn.Module, prop: Property, seconds: float) -> Verdict:
    """As :func:`boundlab.verify`, but an interruption goes on."""
    search = Portfolio(model, prop, time.monotonic() + seconds)
    search.run()
    return search.verdict()


class SpreadSearch:
    """The boxes of a property that are waiting, at work and left open."""

    def __init__(self, model: nn.Module, prop: Property, deadline: float, pool: Pool) -> None:
        self.model, self.prop, self.deadline = model, prop, deadline
        self.workers = pool.most or max(pool.processors, 1)
        self.waiting = deque(Piece(number, region) for number, (region, _) in enumerate(prop.parts))
        self.working: dict[int, Piece] = {}
        self.left: list[Piece] = []
        """Boxes for which the time was not enough."""
        self.least = math.inf
        """The least bound of the boxes that are proved."""
        self.found: Attack | None = None
        self.domains = self.proved = self.cuts = self.lost = 0

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    @property
    def open(self) -> list[Piece]:
        """All boxes that are not decided."""
        return [*self.waiting, *self.working.values(), *self.left]

    @property
    def bound(self) -> float:
        return min([self.least, *(piece.bound for piece in self.open)])

    @property
    def said(self) -> str:
        found = f"{self.proved} boxes proved, {len(self.open)} open, {self.cuts} cuts"
        if self.lost:
            found += f", {self.lost} lost"
        return f"{found}, {self.workers} workers"

    def run(self, pool: Pool) -> None:
        """Search until all boxes are decided, one is violated, or the time is up."""
        while len(self.waiting) < PIECES * self.workers and self._cut_next():
            continue
        sent = [pool.put(self.model), pool.put(self.prop)]
        with Calls(pool, verify_piece, self.workers) as calls:
            while (self.waiting or self.working) and self.found is None:
                if self.seconds_left <= 0:
                    break
                self._fill(calls, sent)
                ended = calls.next()
                if ended is not None:
                    self._note(ended)

    def _fill(self, calls: Calls, sent: Sequence[Any]) -> None:
        """Give boxes to workers that have none, each with its share of the time."""
        while self.waiting and calls.count < self.workers:
            rounds = math.ceil((len(self.waiting) + calls.count) / self.workers)
            seconds = min(max(self.seconds_left / rounds, LEAST_SECONDS), self.seconds_left)
            if seconds <= 0:
                return
            piece = self.waiting.popleft()
            self.working[calls.add(sent, piece.part, piece.region, seconds)] = piece

    def _note(self, ended: Ended) -> None:
        piece = self.working.pop(ended.number)
        if ended.lost is not None:
            self.lost += 1
            self.left.append(piece)
            return
        verdict: Verdict = ended.value
        self.domains += verdict.domains
        if verdict.status == HOLDS:
            self.proved += 1
            self.least = min(self.least, verdict.bound)
            return
        if verdict.counterexample is not None:
            self.found = replayed(self.model, self.prop, verdict.counterexample)
        if self.found is not None:
            return
        piece = replace(piece, bound=verdict.bound)
        if verdict.counterexample is None and piece.can_be_cut:
            self._cut(piece)
        else:
            self.left.append(piece)

    def _cut_next(self) -> bool:
        """Cut the first box that can be cut; those that cannot go behind the others."""
        for _ in range(len(self.waiting)):
            piece = self.waiting.popleft()
            if piece.can_be_cut:
                self._cut(piece)
                return True
            self.waiting.append(piece)
        return False

    def _cut(self, piece: Piece) -> None:
        self.cuts += 1
        for region in halves(self.model, piece.region):
            self.waiting.append(replace(piece, region=region))


def halves(model: nn.Module, region: Region) -> tuple[Box, Box]:
    """A box cut in the middle of the input that seems to move the outputs most."""
    box = region.hull()
    lower, upper = box.lower.flatten(), box.upper.flatten()
    middle = lower / 2 + upper / 2
    can = (lower < middle) & (middle < upper)
    weight = torch.where(can, influence(model, region).flatten(), -1.0)
    chosen = torch.zeros_like(can)
    chosen[weight.argmax()] = True
    below = torch.where(chosen, middle, upper).reshape(box.upper.shape)
    above = torch.where(chosen, middle, lower).reshape(box.lower.shape)
    return Box(box.lower, below), Box(above, box.upper)


def influence(model: nn.Module, region: Region) -> Tensor:
    """How far each input moves the outputs within a box, about: its width times their slopes at
    some points, of the shape of an input; the width alone where there are no slopes."""
    box = region.hull()
    width = (box.upper - box.lower).double()
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros_like(width)
    with torch.enable_grad():
        for _ in range(POINTS):
            x = region.sample(generator).requires_grad_()
            outputs = target_of(model, x)(x).flatten()
            if not outputs.requires_grad:
                return width
            for one in outputs[:OUTPUTS]:
                (slope,) = torch.autograd.grad(one, x, retain_graph=True, allow_unused=True)
                if slope is not None:
                    total += slope.double().abs().nan_to_num(0.0, 0.0, 0.0)
    if not bool(total.any()):
        return width
    # a little of the width: an input that moves nothing at these points may do so at others
    return width * (total / total.max() + 1e-3)


def verify_piece(sent: Sequence[Any], part: int, region: Region, seconds: float) -> Verdict:
    """Verify one part of a property on a smaller region."""
    model, prop = import_ray().get(list(sent))
    _, unsafe = prop.parts[part]
    return verified(model, Property.of_unsafe([(region, unsafe)]), seconds)
