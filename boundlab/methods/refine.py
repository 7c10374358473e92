"""Bounds of the elements of a node by backward mode, with no more work than they need.

Elements that a cheaper bound decides are left out; of both sides of an element the one that may
decide it comes first; and rows drop out on their way back as soon as the intervals of an earlier
node decide them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.methods.analysis import Analysis
from boundlab.methods.backward import Steps, concretize, propagate_backward
from boundlab.methods.memory import coefficients, rows_at_once, rows_from_now_on
from boundlab.relaxations.interval import Interval

WORTH_DROPPING = 0.8
"""Rows are dropped once no more than this share of them is left."""
TRIAL = 32
"""How many rows of each sample tell whether a look at a node leaves no more than that share of
them; up to twice as many if these are all."""

Unstable = Callable[[Interval], Tensor]
"""Which elements of a node are worth more work, given what is known of it by now."""


def total_size(analysis: Analysis, target: str) -> int:
    """How many elements the nodes that ``target`` depends on have in all."""
    return sum(analysis.interval(name).shape.numel() for name in analysis.plan.behind(target))


def lower_bounds(analysis: Analysis, target: str, rows: Coefficients) -> Tensor:
    """Lower bounds of <rows, target>: (rows, samples)."""
    return concretize(analysis, *propagate_backward(analysis, target, rows))


def bound_node(
    analysis: Analysis, target: str, sides: str = "both", unstable: Unstable | None = None
) -> Interval:
    """What is known of a node, made tighter by backward mode.

    unstable: asks which elements to bound, before any work and again as bounds become known; None
    asks for every element. Of both sides the one nearer to 0 comes first, as it may settle the
    matter.
    """
    known, at_once = analysis.interval(target), rows_at_once(analysis, target)
    every = torch.ones_like(known.lower, dtype=torch.bool)
    if sides != "both":
        return _one_side(
            analysis,
            target,
            known,
            every if sides == "lower" else ~every,
            unstable,
            at_once,
            Looks(),
        )[0]
    first, looks = known.centre >= 0, Looks()
    known, widest = _one_side(analysis, target, known, first, unstable, at_once, looks)
    at_once = max(at_once, coefficients(analysis) // widest) if widest else at_once
    return _one_side(analysis, target, known, ~first, unstable, at_once, looks)[0]


def _one_side(
    analysis: Analysis,
    target: str,
    known: Interval,
    below: Tensor,
    unstable: Unstable | None,
    at_once: int,
    looks: Looks,
) -> tuple[Interval, int]:
    """Bound the unstable elements of a node on one side: from below where ``below`` says so, else
    from above. at_once: how many rows to begin with; returned is also how many coefficients of one
    node a row takes at most, 0 if that is not known. looks: what those of the other side, if it
    came first, have settled; else some rows of this one try."""
    elements = analysis.elements(target)
    # (samples, size)
    wanted = elements.split(torch.ones_like(below) if unstable is None else unstable(known))
    sign = torch.where(elements.split(below), 1, -1).to(known.dtype)
    counts = wanted.sum(1)
    count = int(counts.max()) if wanted.numel() else 0
    if not count:
        return known, 0

    def known_with(least: Tensor) -> Interval:
        """With lower bounds (samples, size) of the element times its sign; only of what was asked
        for, so that no sample gains by what another one in its batch needs."""
        least = elements.join(torch.where(wanted, least, -torch.inf))
        infinite = torch.full_like(least, torch.inf)
        return known.intersect(
            Interval(torch.where(below, least, -infinite), torch.where(below, infinite, -least))
        )

    # Each sample's wanted elements first; rows of samples that want fewer are filled with others.
    order = wanted.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count].T
    order = _spread(order, counts).contiguous()  # (rows, samples), and so will the rows be
    best = torch.full(wanted.shape, -torch.inf, dtype=known.dtype, device=known.device)
    # (samples,)
    trying = torch.zeros_like(counts) if looks.before else counts.where(counts <= 2 * TRIAL, TRIAL)
    widest, most, done = 0, 0 if looks.before else min(count, 2 * TRIAL), 0
    while done < len(order):
        chosen = order[done : done + at_once]
        rows = elements.rows(chosen, sign.T.gather(0, chosen))
        if unstable is None:
            best = best.scatter(1, chosen.T, lower_bounds(analysis, target, rows).T.to(known.dtype))
            done += len(chosen)
            continue
        trial = torch.arange(done, done + len(chosen), device=chosen.device)[:, None] < trying
        going = lambda least: elements.split(unstable(known_with(least)))
        race = Race(
            analysis,
            chosen,
            wanted.T.gather(0, chosen),
            trial,
            best,
            going,
            looks,
            max(0, most - done),
            count > most,
        )
        arrived = race.run(target, rows)
        best, done, widest = (
            race.best,
            done + len(chosen),
            max(widest, race.widest if arrived else 0),
        )
        at_once = max(
            at_once,
            rows_from_now_on(
                analysis, target, len(chosen), race.peak, race.widest if arrived else None
            ),
        )
    return known_with(best), widest


def _spread(order: Tensor, counts: Tensor) -> Tensor:
    """The rows (rows, samples) with some first that are spread evenly over the first ``counts`` of
    each sample."""
    if len(order) <= TRIAL:
        return order
    chosen = torch.arange(TRIAL, device=order.device)[:, None] * counts // TRIAL
    first = torch.zeros(order.shape, dtype=torch.int8, device=order.device).scatter_(0, chosen, 1)
    return order.gather(0, first.argsort(dim=0, descending=True, stable=True))


@dataclass(eq=False)
class Looks:
    """How much looks at nodes on the way back have settled of the first rows of each sample. These
    rows alone tell what the others do, so that bounds depend neither on how many rows are worked on
    at once nor on the other samples of the batch."""

    before: dict[str, Tensor] = field(default_factory=dict)
    after: dict[str, Tensor] = field(default_factory=dict)
    """By node, how many of these rows were open before a look and after it: (samples,)."""
    idle: dict[str, bool] = field(default_factory=dict)
    """By node, whether no sample's other rows are to look at it."""

    def count(self, name: str, before: Tensor, after: Tensor) -> None:
        self.before[name] = self.before.get(name, 0) + before.sum(0)
        self.after[name] = self.after.get(name, 0) + after.sum(0)
        self.idle.pop(name, None)

    def worth(self, name: str) -> Tensor | None:
        """The samples whose other rows are to look at a node: (samples,); None if no row of the
        trial came as far."""
        return (
            self.after[name] <= WORTH_DROPPING * self.before[name] if name in self.before else None
        )

    def is_idle(self, name: str, worth: Tensor | None) -> bool:
        if name not in self.idle:  # the same for many parts
            self.idle[name] = worth is not None and not bool(worth.any())
        return self.idle[name]


@dataclass(eq=False)
class Race:
    """Rows that drop out on their way back. ``running``: the element that each row stands for;
    ``open``: the rows that are not settled, what is known of the others does not change any more,
    though they may run on; ``trial``: the rows that always look; all (rows, samples). ``best``:
    lower bounds of all elements so far, (samples, size). ``going``: from these, which elements need
    more work."""

    analysis: Analysis
    running: Tensor
    open: Tensor
    trial: Tensor
    best: Tensor
    going: Callable[[Tensor], Tensor]
    looks: Looks
    trying: int
    """How many rows, the first ones, have those of the trial among them."""
    others: bool
    """Whether there may be other rows."""
    peak: int = 0
    widest: int = 0
    """The largest number of coefficients of one node so far: of all rows, and of one."""

    def run(self, target: str, rows: Coefficients) -> bool:
        """Pull the rows back, and note the bounds of those that come to the sources; whether any
        do."""
        ends, bias = propagate_backward(self.analysis, target, rows, Steps(visit=self.visit))
        if len(bias):
            self.note(concretize(self.analysis, ends, bias), self.open)
        return bool(len(bias))

    def visit(self, name: str, rows: Coefficients, bias: Tensor, alone: bool) -> Tensor | None:
        """Bound rows that are all at one node by its interval; which of them go on."""
        self.peak = max(self.peak, rows.size)
        self.widest = max(self.widest, rows.size // max(1, len(bias)))
        if not alone or name not in self.analysis.plan.readers:
            return None
        if self.trying:
            first = slice(self.trying)
            found = self._look(name, rows[first], bias[first], self.trial[first])
            self.looks.count(name, *found)
        worth = self.looks.worth(name)
        if self.looks.is_idle(name, worth):
            return None
        if self.others:
            self._look(name, rows, bias, ~self.trial if worth is None else worth & ~self.trial)
        count = int(self.open.sum(0).max())
        if count > WORTH_DROPPING * len(self.open):
            return None
        kept = self.open.to(torch.int8).argsort(dim=0, descending=True, stable=True)[:count]
        self.running, self.open, self.trial = (
            value.gather(0, kept) for value in (self.running, self.open, self.trial)
        )
        return kept

    def _look(
        self, name: str, rows: Coefficients, bias: Tensor, looking: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Bound the first rows by the interval of a node, those that are ``looking``; which of
        these were open before and are."""
        self.note(bias + rows.least(self.analysis.interval(name)), looking)
        before = self.open[: len(bias)]
        after = before & self.going(self.best).T.gather(0, self.running[: len(bias)])
        self.open = torch.cat([after | (before & ~looking), self.open[len(bias) :]])
        return before & looking, after & looking

    def note(self, bounds: Tensor, rows: Tensor) -> None:
        """Lower bounds of the first of the running rows; those of ``rows`` count as far as they are
        open."""
        running = self.running[: len(bounds)]
        old = self.best.T.gather(0, running)
        new = torch.where(
            self.open[: len(bounds)] & rows, torch.fmax(bounds.to(old.dtype), old), old
        )
        self.best = self.best.scatter(1, running.T, new.T)
