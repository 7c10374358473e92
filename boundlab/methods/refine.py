"""Bounds of the elements of a node by backward mode, with no more work than they need.

Elements that a cheaper bound decides are left out; of both sides of an element the one that may decide it comes first;
and rows drop out on their way back as soon as the intervals of an earlier node decide them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.batch import Layout
from boundlab.forms import Window
from boundlab.interval import Interval
from boundlab.methods.analysis import Analysis
from boundlab.methods.backward import Rows, concretize, dense, interval_rows, pull_back
from boundlab.methods.memory import coefficients, rows_at_once

WORTH_DROPPING = 0.8
"""Rows are dropped once no more than this share of them is left."""

Undecided = Callable[[Interval], Tensor]
"""Which elements of a node are worth more work, given what is known of it by now."""


def total_size(analysis: Analysis, target: str) -> int:
    """How many elements the nodes that ``target`` depends on have in all."""
    return sum(analysis.interval(name).shape.numel() for name in analysis.plan.behind(target))


def lower_bounds(analysis: Analysis, target: str, rows: Rows) -> Tensor:
    """Lower bounds of <rows, target>: (rows, samples)."""
    return concretize(analysis, *pull_back(analysis, target, rows))


@dataclass(frozen=True, eq=False)
class Elements:
    """The elements of a node, sample by sample."""

    analysis: Analysis
    target: str

    @property
    def like(self) -> Tensor:
        return self.analysis.interval(self.target).lower

    @property
    def layout(self) -> Layout | None:
        return self.analysis.graph.nodes[self.target].layout

    @property
    def samples(self) -> int:
        return self.analysis.samples if self.layout is not None else 1

    def split(self, value: Tensor) -> Tensor:
        """A value of the node as (samples, size)."""
        return value.reshape(self.samples, -1) if self.layout is None else self.layout.samples_first(value[None], self.samples)[0]

    def join(self, flat: Tensor) -> Tensor:
        """The inverse of :meth:`split`."""
        return flat.reshape(self.like.shape) if self.layout is None else self.layout.place(flat[None], self.like.shape)[0]

    def rows(self, chosen: Tensor, signs: Tensor) -> Rows:
        """Rows that pick one element of each sample, with a sign: both (rows, samples)."""
        if self.layout == Layout():
            return Window.units(signs, chosen, self.like.shape[1:])
        size = self.like.numel() // max(self.samples, 1)
        rows = torch.zeros(*chosen.shape, size, dtype=signs.dtype, device=signs.device).scatter_(2, chosen.unsqueeze(2), signs.unsqueeze(2))
        return rows.reshape(len(chosen), 1, *self.like.shape) if self.layout is None else self.layout.place(rows, self.like.shape)


def identity_rows(analysis: Analysis, target: str) -> Tensor:
    """Rows that pick every element of each sample of a node, in order."""
    elements = Elements(analysis, target)
    size = elements.like.numel() // max(elements.samples, 1)
    every = torch.arange(size, device=elements.like.device)[:, None].expand(-1, elements.samples)
    return dense(elements.rows(every, torch.ones(every.shape, dtype=elements.like.dtype, device=every.device)))


def bound_node(analysis: Analysis, target: str, sides: str = "both", undecided: Undecided | None = None) -> Interval:
    """What is known of a node, made tighter by backward mode.

    undecided: asks which elements to bound, before any work and again as bounds become known; None asks for every
    element. Of both sides the one nearer to 0 comes first, as it may settle the matter.
    """
    known = analysis.interval(target)
    every = torch.ones_like(known.lower, dtype=torch.bool)
    if sides != "both":
        return _one_side(analysis, target, known, every if sides == "lower" else ~every, undecided)
    first = known.centre >= 0
    known = _one_side(analysis, target, known, first, undecided)
    return _one_side(analysis, target, known, ~first, undecided)


def _one_side(analysis: Analysis, target: str, known: Interval, below: Tensor, undecided: Undecided | None) -> Interval:
    """Bound the undecided elements of a node on one side: from below where ``below`` says so, else from above."""
    elements = Elements(analysis, target)
    wanted = elements.split(torch.ones_like(below) if undecided is None else undecided(known))  # (samples, size)
    sign = torch.where(elements.split(below), 1, -1).to(known.dtype)
    count = int(wanted.sum(1).max()) if wanted.numel() else 0
    if not count:
        return known

    def known_with(least: Tensor) -> Interval:
        """With lower bounds (samples, size) of the element times its sign; only of what was asked for, so that no sample
        gains by what another one in its batch needs."""
        least = elements.join(torch.where(wanted, least, -torch.inf))
        infinite = torch.full_like(least, torch.inf)
        return known.intersect(Interval(torch.where(below, least, -infinite), torch.where(below, infinite, -least)))

    # Each sample's wanted elements first; rows of samples that want fewer are filled with others.
    order = wanted.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count].T  # (rows, samples)
    best = torch.full(wanted.shape, -torch.inf, dtype=known.dtype, device=known.device)
    at_once = rows_at_once(analysis, target)
    fruitless: set[str] = set()
    while len(order):
        chosen, order = order[:at_once], order[at_once:]
        rows = elements.rows(chosen, sign.gather(1, chosen.T).T)
        if undecided is None:
            best = best.scatter(1, chosen.T, lower_bounds(analysis, target, rows).T.to(known.dtype))
            continue
        race = Race(analysis, chosen, best, lambda least: elements.split(undecided(known_with(least))) & wanted, fruitless)
        ends, bias = pull_back(analysis, target, rows, visit=race.visit)
        if len(bias):
            race.note(concretize(analysis, ends, bias))
        best = race.best
        at_once = max(at_once, coefficients(analysis) * len(chosen) // max(1, race.peak))  # windows take less than dense rows
    return known_with(best)


@dataclass(eq=False)
class Race:
    """Rows that drop out on their way back. ``running``: the element that each row stands for, (rows, samples). ``best``:
    lower bounds of all elements so far, (samples, size). ``going``: from these, which elements need more work."""

    analysis: Analysis
    running: Tensor
    best: Tensor
    going: Callable[[Tensor], Tensor]
    fruitless: set[str]
    """Nodes at which a look dropped too few rows of this target."""
    peak: int = 0
    """The largest number of coefficients of one node so far."""

    def note(self, bounds: Tensor) -> None:
        """Lower bounds of the running rows."""
        old = self.best.gather(1, self.running.T)
        self.best = self.best.scatter(1, self.running.T, torch.fmax(bounds.T.to(old.dtype), old))

    def visit(self, name: str, rows: Rows, bias: Tensor, alone: bool) -> Tensor | None:
        """Bound rows that are all at one node by its interval; which of them go on."""
        self.peak = max(self.peak, (rows.values if isinstance(rows, Window) else rows).numel())
        if not alone or name not in self.analysis.plan.readers or name in self.fruitless:
            return None
        self.note(bias + interval_rows(self.analysis, name, rows, self.analysis.interval(name)))
        going = self.going(self.best).T.gather(0, self.running)
        count = int(going.sum(0).max())
        if count > WORTH_DROPPING * len(going):
            self.fruitless.add(name)
            return None
        kept = going.to(torch.int8).argsort(dim=0, descending=True, stable=True)[:count]
        self.running = self.running.gather(0, kept)
        return kept
