"""Bounds of the elements of a node by backward mode, with no more work than they need.

Elements that a cheaper bound decides are left out; of both sides of an element the one that may
decide it comes first; and rows drop out on their way back as soon as the intervals of an earlier
node decide them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.methods.analysis import Analysis
from boundlab.methods.backward import Steps, concretize, propagate_backward
from boundlab.methods.memory import coefficients, rows_at_once, rows_from_now_on
from boundlab.relaxations.interval import Interval
from boundlab.specs.rows import Elements

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
    known = analysis.interval(target)
    at_once = rows_at_once(analysis, target)
    every = torch.ones_like(known.lower, dtype=torch.bool)
    if sides == "lower":
        return Side(analysis, target, known, every, unstable).bound(at_once, Looks())[0]
    if sides == "upper":
        return Side(analysis, target, known, ~every, unstable).bound(at_once, Looks())[0]
    below, looks = known.centre >= 0, Looks()
    known, widest = Side(analysis, target, known, below, unstable).bound(at_once, looks)
    if widest:
        at_once = max(at_once, coefficients(analysis) // widest)
    return Side(analysis, target, known, ~below, unstable).bound(at_once, looks)[0]


@dataclass(frozen=True, eq=False)
class Side:
    """One bound of each element of a node ``target``: the lower one where ``below`` (in the shape
    of the node) says so, else the upper one. Both are lower bounds of ``sign * element``, with the
    sign 1 or -1, which is what backward mode finds.

    known: what is known of the node. unstable: which elements are worth the work; None: all.
    """

    analysis: Analysis
    target: str
    known: Interval
    below: Tensor
    unstable: Unstable | None

    @cached_property
    def elements(self) -> Elements:
        return self.analysis.elements(self.target)

    @cached_property
    def wanted(self) -> Tensor:
        """The elements to bound, as a mask: (samples, size)."""
        if self.unstable is None:
            return self.elements.split(torch.ones_like(self.below))
        return self.elements.split(self.unstable(self.known))

    @cached_property
    def sign(self) -> Tensor:
        """1 for a lower bound, -1 for an upper one: (samples, size)."""
        return torch.where(self.elements.split(self.below), 1, -1).to(self.known.dtype)

    @cached_property
    def counts(self) -> Tensor:
        """How many elements of each sample are to be bounded: (samples,)."""
        return self.wanted.sum(1)

    @cached_property
    def count(self) -> int:
        """How many rows that takes: as many as the sample with most of them has."""
        if not self.wanted.numel():
            return 0
        return int(self.counts.max())

    def order(self) -> Tensor:
        """The element that each row stands for: (rows, samples). Each sample's wanted elements come
        first; rows of samples that want fewer are filled with others."""
        wanted_first = self.wanted.to(torch.int8).argsort(dim=1, descending=True, stable=True)
        order = _spread(wanted_first[:, : self.count].T, self.counts)
        return order.contiguous()  # and so will the rows be

    def rows(self, chosen: Tensor) -> Coefficients:
        """The coefficients of ``sign * element`` for chosen elements (rows, samples)."""
        return self.elements.rows(chosen, self.sign.T.gather(0, chosen))

    def known_with(self, least: Tensor) -> Interval:
        """What is known of the node with lower bounds (samples, size) of ``sign * element``; only
        of what was asked for, so that no sample gains by what another one in its batch needs."""
        least = self.elements.join(torch.where(self.wanted, least, -torch.inf))
        infinite = torch.full_like(least, torch.inf)
        lower = torch.where(self.below, least, -infinite)
        upper = torch.where(self.below, infinite, -least)
        return self.known.intersect(Interval(lower, upper))

    def bound(self, at_once: int, looks: Looks) -> tuple[Interval, int]:
        """What is known of the node then, and how many coefficients of one node a row takes at
        most, 0 if that is not known.

        at_once: how many rows to begin with. looks: what those of the other side, if it came first,
        have settled; else some rows of this one try.
        """
        if not self.count:
            return self.known, 0
        nothing = torch.full(
            self.wanted.shape, -torch.inf, dtype=self.known.dtype, device=self.known.device
        )
        if self.unstable is None:
            return self.known_with(self._all_the_way(nothing, at_once)), 0
        best, widest = self._race(nothing, self.unstable, at_once, looks)
        return self.known_with(best), widest

    def _all_the_way(self, best: Tensor, at_once: int) -> Tensor:
        """Lower bounds (samples, size) of ``sign * element``, ``best`` before: every row is pulled
        back to the sources."""
        for chosen in self.order().split(at_once):
            found = lower_bounds(self.analysis, self.target, self.rows(chosen))
            best = best.scatter(1, chosen.T, found.T.to(best.dtype))
        return best

    def _race(
        self, best: Tensor, unstable: Unstable, at_once: int, looks: Looks
    ) -> tuple[Tensor, int]:
        """The same for rows that drop out on their way back, and how many coefficients of one node
        a row took at most."""
        order, trial = self.order(), Trial.of(self, looks)
        going = lambda least: self.elements.split(unstable(self.known_with(least)))
        widest = done = 0
        while done < len(order):
            chosen = order[done : done + at_once]
            race = Race(
                self.analysis,
                running=chosen,
                open=self.wanted.T.gather(0, chosen),
                trial=trial.among(done, done + len(chosen)),
                best=best,
                going=going,
                looks=looks,
                trying=max(0, trial.most - done),
                others=self.count > trial.most,
            )
            width = race.run(self.target, self.rows(chosen))
            best = race.best
            widest = max(widest, width or 0)
            done += len(chosen)
            fit = rows_from_now_on(self.analysis, self.target, len(chosen), race.peak, width)
            at_once = max(at_once, fit)
        return best, widest


@dataclass(frozen=True, eq=False)
class Trial:
    """The first rows of each sample, which try whether looks at nodes settle anything. count: how
    many there are, (samples,); most: the largest count there may be."""

    count: Tensor
    most: int

    @staticmethod
    def of(side: Side, looks: Looks) -> Trial:
        """No rows if the other side of the elements has tried already; else some of each sample, or
        all if there are few."""
        if looks.before:
            return Trial(torch.zeros_like(side.counts), 0)
        few = side.counts <= 2 * TRIAL
        return Trial(side.counts.where(few, TRIAL), min(side.count, 2 * TRIAL))

    def among(self, first: int, end: int) -> Tensor:
        """Which of the rows from ``first`` to ``end`` belong to it: (rows, samples)."""
        return torch.arange(first, end, device=self.count.device)[:, None] < self.count


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
        if name not in self.before:
            return None
        return self.after[name] <= WORTH_DROPPING * self.before[name]

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

    def run(self, target: str, rows: Coefficients) -> int | None:
        """Pull the rows back, and note the bounds of those that come to the sources. Returns the
        largest number of coefficients of one node that a row took; None if no row came so far."""
        ends, bias = propagate_backward(self.analysis, target, rows, Steps(visit=self.visit))
        if not len(bias):
            return None
        self.note(concretize(self.analysis, ends, bias), self.open)
        return self.widest

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
            looking = ~self.trial
            if worth is not None:
                looking &= worth
            self._look(name, rows, bias, looking)
        count = int(self.open.sum(0).max())
        if count > WORTH_DROPPING * len(self.open):
            return None
        kept = self.open.to(torch.int8).argsort(dim=0, descending=True, stable=True)[:count]
        self.running = self.running.gather(0, kept)
        self.open = self.open.gather(0, kept)
        self.trial = self.trial.gather(0, kept)
        return kept

    def _look(
        self, name: str, rows: Coefficients, bias: Tensor, looking: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Bound the first rows by the interval of a node, those that are ``looking``; which of
        these were open before and are."""
        self.note(bias + self.analysis.least(name, rows), looking)
        before = self.open[: len(bias)]
        after = before & self.going(self.best).T.gather(0, self.running[: len(bias)])
        self.open = torch.cat([after | (before & ~looking), self.open[len(bias) :]])
        return before & looking, after & looking

    def note(self, bounds: Tensor, rows: Tensor) -> None:
        """Lower bounds of the first of the running rows; those of ``rows`` count as far as they are
        open."""
        running = self.running[: len(bounds)]
        old = self.best.T.gather(0, running)
        counts = self.open[: len(bounds)] & rows
        new = torch.where(counts, torch.fmax(bounds.to(old.dtype), old), old)
        self.best = self.best.scatter(1, running.T, new.T)
