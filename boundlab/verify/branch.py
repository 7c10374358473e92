"""Which element of which node a domain is split at, and where.

The gradient of the bound by the ends of intervals tells which one: to put the lower end of an
element to the point of the split raises the bound by about d bound / d lower * (at - lower), and
likewise for the upper end. That holds for every relaxation that depends on intervals, whatever the
operator is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.methods.method import Method
from boundlab.methods.state import BoundState
from boundlab.net.problem import Problem
from boundlab.regions import Box
from boundlab.relaxations.interval import Interval
from boundlab.rules.registry import aten

SCORING = Method("scoring", "interval", "backward")
KINKS = {aten.relu.default, aten.leaky_relu.default, aten.abs.default, aten.threshold.default}
"""Operators that are split at 0: they are linear on either side of it."""
ASIDE = 1e-5
"""Share of an interval by which its ends are moved inward when scores are computed: where
interval arithmetic gives the same end, the gradient would go there."""
OTHER_SIDE = 0.1
"""How much the larger of the two gains of a split counts beside the smaller one."""


@dataclass(frozen=True, eq=False)
class Look:
    """Gradients of the bounds of domains. slopes: by the ends of intervals, (domains, elements) for
    each node; corners (domains, in): where the linear function below the rows is least."""

    slopes: dict[str, Interval]
    corners: Tensor


@dataclass(frozen=True, eq=False)
class Splits:
    """Elements to split, the best one first: their numbers, the points where they are split, their
    scores, the ends of their intervals, and whether they have a kink at 0, all (domains, splits);
    corners (domains, in), which may be counterexamples."""

    places: Tensor
    points: Tensor
    scores: Tensor
    lower: Tensor
    upper: Tensor
    kinked: Tensor
    corners: Tensor

    @property
    def can(self) -> Tensor:
        """Which domains can be split: (domains,)."""
        return self.scores[:, 0] > 0

    def take(self, chosen: Tensor) -> Splits:
        """Those of some domains."""
        return self._changed(lambda part: part[chosen], self.corners[chosen])

    def ordered(self, order: Tensor) -> Splits:
        """Some of the splits of each domain (domains, fewer) in another order."""
        return self._changed(lambda part: part.gather(1, order), self.corners)

    def _changed(self, change: Callable[[Tensor], Tensor], corners: Tensor) -> Splits:
        return Splits(
            change(self.places),
            change(self.points),
            change(self.scores),
            change(self.lower),
            change(self.upper),
            change(self.kinked),
            corners,
        )


@dataclass(frozen=True, eq=False)
class Brancher:
    """Chooses splits of the domains of a problem. Elements are numbered over all nodes of a state,
    in their order. read: the nodes that relaxations read, and whether they are split at 0."""

    problem: Problem
    read: dict[str, bool]

    @staticmethod
    def of(problem: Problem) -> Brancher:
        return Brancher(problem, read_nodes(problem))

    def nodes(self, state: BoundState) -> dict[str, bool]:
        """The nodes that are split, and whether at 0: those with numbers, not truth values."""
        return {name: kinked for name, kinked in self.read.items() if name in state.intervals}

    def best_splits(self, state: BoundState, levels: int) -> Splits:
        """The best elements to split; fewer levels if not all domains have so many."""
        look = self.look(state)
        nothing = torch.zeros(state.samples or 0, 1)  # of a model without relaxations
        scores = torch.cat(self._scores(state, look.slopes) or [nothing], 1)
        best = torch.topk(scores, min(levels, scores.shape[1]), 1)
        deep = max(int((best.values > 0).all(0).sum()), 1)
        lower, upper, points, kinked = self._elements(state, best.indices)
        found = Splits(best.indices, points, best.values, lower, upper, kinked, look.corners)
        return found.ordered(torch.arange(deep).expand(len(scores), deep))

    def _elements(self, state: BoundState, places: Tensor) -> tuple[Tensor, ...]:
        """The ends of the intervals of elements, where they are split, and whether at a kink: all
        like places (domains, splits)."""
        columns = []
        for name, kinked in self.nodes(state).items():
            x = per_domain(state, name)
            at = _split_points(x, kinked)
            columns.append((x.lower, x.upper, at, torch.full_like(at, kinked, dtype=torch.bool)))
        if not columns:
            nothing = torch.zeros(places.shape)
            return nothing, nothing, nothing, nothing.bool()
        together = (torch.cat(parts, 1) for parts in zip(*columns, strict=True))
        return tuple(part.gather(1, places) for part in together)

    def _scores(self, state: BoundState, slopes_of: dict[str, Interval]) -> list[Tensor]:
        """How much a split of each element raises bounds: (domains, elements) for each node."""
        found = []
        for name, kinked in self.nodes(state).items():
            x, slopes = per_domain(state, name), slopes_of[name]
            at = _split_points(x, kinked)
            score = worth(gain(slopes.lower, at - x.lower), gain(slopes.upper, at - x.upper))
            splits = (x.lower < at) & (at < x.upper)
            found.append(torch.where(splits, score + 1e-12 * (x.upper - x.lower), 0))
        return found

    def look(self, state: BoundState) -> Look:
        """The gradients of the bounds of domains by what they depend on."""
        nodes = self.nodes(state)
        inner = {name: _moved_inward(x) for name, x in state.intervals.items()}
        ends = [end for name in nodes for end in (inner[name].lower, inner[name].upper)]
        problem, box = self._with_own_boxes(state)
        ends += [box.lower, box.upper]
        found: Sequence[Tensor | None] = [None] * len(ends)
        own = torch.arange(state.samples or 0)
        with torch.enable_grad():
            given = replace(state, intervals=inner, origin=own)
            total = problem.bounds(given, SCORING, "lower").lower.amax(1).sum()
            if total.requires_grad:  # else it depends on nothing
                found = torch.autograd.grad(total, ends, allow_unused=True)
        slopes = {}
        for number, name in enumerate(nodes):
            both = [_or_zeros(found[2 * number + side], inner[name].lower) for side in (0, 1)]
            slopes[name] = Interval(*(of_domains(state, name, slope) for slope in both))
        at_lower, at_upper = (_or_zeros(found[side], box.lower) for side in (-2, -1))
        corners = torch.where(at_lower.abs() >= at_upper.abs(), box.lower, box.upper)
        return Look(slopes, corners.detach().flatten(1))

    def _with_own_boxes(self, state: BoundState) -> tuple[Problem, Box]:
        """The problem with a box for each domain, whose ends have gradients."""
        ((name, region),) = self.problem.regions.items()
        hull = region.hull()
        lower, upper = (end[state.origin].clone() for end in (hull.lower, hull.upper))
        box = Box(lower.requires_grad_(), upper.requires_grad_())
        spec = self.problem.spec
        if spec is not None and spec.dim() == 3:
            spec = spec[state.origin]
        return replace(self.problem, regions={name: box}, spec=spec), box

    def halved(self, state: BoundState, place: Tensor, point: Tensor) -> BoundState:
        """Both sides of an element (domains,) of each domain, split at a point (domains,): (2 *
        domains)."""
        sides = {1: state, -1: state}
        for name in self.nodes(state):
            size = per_domain(state, name).lower.shape[1]
            here = (place >= 0) & (place < size)
            if bool(here.any()):
                for sign in sides:
                    sides[sign] = sides[sign].split(name, place[here], sign, point[here], here)
            place = place - size
        return BoundState.join([sides[1], sides[-1]])


def read_nodes(problem: Problem) -> dict[str, bool]:
    """The nodes that a relaxation reads; and whether all relaxations that read it have a kink at
    0."""
    graph = problem.net.graph
    plan = problem.net.questions.plan(problem.regions, target=problem.target)
    found: dict[str, bool] = {}
    for name in plan.nonlinear:
        for source in plan.calls[name].names:
            if source not in plan.sources and graph.nodes[source].layout.batched:
                kinked = graph.nodes[name].op in KINKS
                found[source] = kinked and found.get(source, True)
    return {name: found[name] for name in graph.nodes if name in found}


def per_domain(state: BoundState, name: str) -> Interval:
    """The interval of a node, (domains, elements)."""
    x = state.intervals[name]
    return Interval(of_domains(state, name, x.lower), of_domains(state, name, x.upper))


def of_domains(state: BoundState, name: str, value: Tensor) -> Tensor:
    """A value of a node, by domain: (domains, elements)."""
    return state.layout(name).samples_first(value[None], state.samples or 0)[0]


def _split_points(x: Interval, kinked: bool) -> Tensor:
    """Where elements are split: at the kink, or in the middle."""
    if kinked:
        return torch.zeros_like(x.lower)
    return x.lower + (x.upper - x.lower) / 2


def worth(one: Tensor, other: Tensor) -> Tensor:
    """What a split is worth whose sides gain so much: the less of both, and a little of the
    more."""
    return torch.minimum(one, other) + OTHER_SIDE * torch.maximum(one, other)


def gain(slope: Tensor, move: Tensor) -> Tensor:
    """How far a bound rises if an end of an interval is moved."""
    return (slope * move).nan_to_num(0.0, 0.0, 0.0).clamp(min=0)


def _or_zeros(slope: Tensor | None, like: Tensor) -> Tensor:
    if slope is None:
        return torch.zeros_like(like)
    return slope.detach()


def _moved_inward(x: Interval) -> Interval:
    step = ASIDE * (x.upper - x.lower).nan_to_num(0.0, 0.0, 0.0)
    return Interval((x.lower + step).requires_grad_(), (x.upper - step).requires_grad_())
