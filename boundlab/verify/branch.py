"""Which element of which node a domain is split at, and where.

The gradient of the bound by the ends of intervals tells which one: to put the lower end of an
element to the point of the split raises the bound by about d bound / d lower * (at - lower), and
likewise for the upper end. That holds for every relaxation that depends on intervals, whatever the
operator is.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Elements to split and their scores, both (domains, levels), the best one first; corners
    (domains, in), which may be counterexamples."""

    places: Tensor
    scores: Tensor
    corners: Tensor

    @property
    def can(self) -> Tensor:
        """Which domains can be split: (domains,)."""
        return self.scores[:, 0] > 0


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
        return Splits(best.indices[:, :deep], best.values[:, :deep], look.corners)

    def _scores(self, state: BoundState, slopes_of: dict[str, Interval]) -> list[Tensor]:
        """How much a split of each element raises the lower of the two bounds, and a little of the
        higher: (domains, elements) for each node."""
        found = []
        for name, kinked in self.nodes(state).items():
            x, slopes = per_domain(state, name), slopes_of[name]
            at = _split_points(x, kinked)
            up, down = gain(slopes.lower, at - x.lower), gain(slopes.upper, at - x.upper)
            score = torch.minimum(up, down) + OTHER_SIDE * torch.maximum(up, down)
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

    def halved(self, state: BoundState, place: Tensor) -> BoundState:
        """Both sides of an element (domains,) of each domain: (2 * domains)."""
        sides = {1: state, -1: state}
        for name, kinked in self.nodes(state).items():
            at = _split_points(per_domain(state, name), kinked)
            here = (place >= 0) & (place < at.shape[1])
            if bool(here.any()):
                element = place[here]
                points = at[here].gather(1, element.unsqueeze(1)).squeeze(1)
                for sign in sides:
                    sides[sign] = sides[sign].split(name, element, sign, points, here)
            place = place - at.shape[1]
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
