"""Branch and bound over neurons.

A domain is a set of constraints ``sign * (h - at) >= 0`` on elements h of nodes: they make
relaxations tighter, and beta-CROWN's multipliers let them count in the backward pass. Domains are
samples of a :class:`~boundlab.methods.state.BoundState`, which carries intervals, slopes and
multipliers from parents to children.

Which element is split is told by the gradient of the bound by the ends of its interval: to put the
lower end to the point of the split raises the bound by about d bound / d lower * (at - lower), and
likewise for the upper end. That holds for every relaxation that depends on intervals, whatever the
operator is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.errors import BoundlabError, MemoryLimit, TimeLimit
from boundlab.methods.alpha import Alpha
from boundlab.methods.deadline import until
from boundlab.methods.method import Method
from boundlab.methods.state import BoundState
from boundlab.net.problem import Problem
from boundlab.relaxations.interval import Interval
from boundlab.rules.registry import aten
from boundlab.verify.counts import Counts
from boundlab.verify.query import Query

SCORING = Method("scoring", "interval", "backward")
BETA_CROWN = Method("beta-crown", "interval", "backward", optimize=True)
KINKS = {aten.relu.default, aten.leaky_relu.default, aten.abs.default, aten.threshold.default}
"""Operators that are split at 0: they are linear on either side of it."""
ROOT_STEPS, STEPS = 30, 7
"""Steps of the ascent for the first domains, and for children."""
ROOT_SHARE = 0.3
"""Share of the time that is left that alpha-crown may take for the intervals of all nodes."""
SMALLEST, LARGEST = 4, 512
ROUND_SECONDS = 1.0
"""How long bounding a batch should take."""
MEMORY = 4 << 30
"""Bytes that open domains may take."""
ASIDE = 1e-5
"""Share of an interval by which its ends are moved inward when scores are computed: where
interval arithmetic gives the same end, the gradient would go there."""


Question = tuple[BoundState, Method, str, Alpha]
"""The arguments of :meth:`Problem.bounds`."""


@dataclass(frozen=True, eq=False)
class Domains:
    """Open domains. bound (domains,): the best lower bound of their rows."""

    state: BoundState
    bound: Tensor

    def __len__(self) -> int:
        return len(self.bound)

    @property
    def nbytes(self) -> int:
        held = [part for x in self.state.intervals.values() for part in (x.lower, x.upper)]
        return 3 * sum(tensor.nbytes for tensor in held)  # slopes, splits and multipliers too

    def take(self, chosen: Tensor) -> Domains:
        return Domains(self.state.take(chosen), self.bound[chosen])

    @staticmethod
    def join(parts: Sequence[Domains]) -> Domains:
        states = [part.state for part in parts]
        return Domains(BoundState.join(states), torch.cat([part.bound for part in parts]))


class NeuronSplitting:
    """The search over constraints on neurons. Its problem has the rows of every clause, as
    samples."""

    def __init__(self, query: Query, deadline: float) -> None:
        self.query = query
        self.problem = query.problem()
        self.coarse: Problem | None = self.problem.to(torch.float32)
        self.deadline = deadline
        self.chunks: list[Domains] = []
        self.counts = Counts()
        self.batch = 32
        self.stuck = 0
        self.root: BoundState | None = None
        self.stuck_bound = math.inf
        self.readers = _split_nodes(self.problem)

    @property
    def open(self) -> int:
        return sum(len(chunk) for chunk in self.chunks) + self.stuck

    @property
    def bound(self) -> float:
        """The least bound of all that is open."""
        return min([self.stuck_bound, *(float(chunk.bound.min()) for chunk in self.chunks)])

    @property
    def is_full(self) -> bool:
        return sum(chunk.nbytes for chunk in self.chunks) > MEMORY

    @property
    def is_over(self) -> bool:
        return not self.chunks or self.is_full or time.monotonic() > self.deadline

    @property
    def is_stuck(self) -> bool:
        """Whether more time would not help."""
        return self.is_full or not self.chunks

    @property
    def is_proved(self) -> bool:
        return not self.open and self.counts.opened > 0 and self.counts.add_up(0)

    @torch.no_grad()
    def begin(self, chosen: Tensor) -> None:
        """Bound some clauses (numbers) with optimised slopes; they stay open if the time is not
        enough for that."""
        self.counts.opened += len(chosen)
        try:
            with until(self.deadline):
                cases = self._bounded_cases(chosen)
                clauses = cases.take(self.query.rows.case)
                basis = self.problem.begun.basis
                origin = torch.arange(len(self.query.rows))
                self.root = replace(clauses, alphas={}, betas={}, origin=origin, basis=basis)
                self._bound(self.root.take(chosen), ROOT_STEPS)
        except TimeLimit:
            self.stuck += len(chosen)
            self.stuck_bound = -math.inf

    def _bounded_cases(self, chosen: Tensor) -> BoundState:
        """Intervals of all nodes over the boxes of all cases, which all clauses of a case share: by
        alpha-crown, or by crown if that takes too long."""
        problem = self.query.case_problem(chosen)
        found = problem.bounds(None, "crown", "lower").state
        left = self.deadline - time.monotonic()
        alpha = Alpha(iterations=ROOT_STEPS, stop_when=0.0)
        try:
            with until(time.monotonic() + ROOT_SHARE * left):
                found = problem.bounds(None, "alpha-crown", "lower", alpha).state
        except (TimeLimit, MemoryLimit):
            if time.monotonic() > self.deadline:
                raise
        assert found is not None
        return found

    def run(self, seconds: float = math.inf) -> None:
        """Search until all is decided, or for some seconds."""
        end = time.monotonic() + seconds
        while not self.is_over and time.monotonic() < end:
            self.round()

    @torch.no_grad()
    def round(self) -> None:
        """Split the worst domains and bound what they are split into."""
        parents = self._pick(max(self.batch // 2, 1))
        start = time.monotonic()
        before = replace(self.counts)
        try:
            with until(self.deadline):
                self._split(parents)
        except (MemoryLimit, TimeLimit):
            self.batch = max(self.batch // 4, 2)
            self.counts = before
            self.chunks.append(parents)
            return
        self._adapt(self.counts.opened - before.opened, time.monotonic() - start)

    def _split(self, parents: Domains) -> None:
        """Bound the children of domains; those without an element to split stay open for ever."""
        places, scores = self._best_splits(parents.state, _levels(len(parents), self.batch))
        free = scores[:, 0] > 0
        if bool(free.any()):
            state, places = parents.state.take(free), places[free]
            for level in range(places.shape[1]):
                state = self._halved(state, places[:, level].repeat(2**level))
            self._bound(state, STEPS)
            self.counts.split += len(places)
            self.counts.opened += len(places) * 2 ** places.shape[1]
        self._give_up(parents.take(~free))

    def _give_up(self, domains: Domains) -> None:
        """No element of these is left to split: they stay open."""
        if len(domains):
            self.stuck += len(domains)
            self.stuck_bound = min(self.stuck_bound, float(domains.bound.min()))

    def _adapt(self, count: int, seconds: float) -> None:
        if seconds > 2 * ROUND_SECONDS:
            self.batch = max(self.batch // 2, SMALLEST)
        elif seconds < ROUND_SECONDS / 2 and count >= self.batch // 2:
            self.batch = min(2 * self.batch, LARGEST)

    def _pick(self, count: int) -> Domains:
        """Take out domains, from the chunks with the least bounds."""
        self.chunks.sort(key=lambda chunk: float(chunk.bound.min()), reverse=True)
        parts: list[Domains] = []
        while self.chunks and sum(map(len, parts)) < count:
            parts.append(self.chunks.pop())
        found = Domains.join(parts) if len(parts) > 1 else parts[0]
        if len(found) <= count:
            return found
        order = found.bound.argsort()
        self.chunks.append(found.take(order[count:]))
        return found.take(order[:count])

    def _bound(self, state: BoundState, steps: int) -> None:
        """Bound domains, count those that are decided, keep the others."""
        found = self.problem.bounds(*self._climbed(state, steps))
        assert found.state is not None
        values = torch.where(found.lower.isfinite(), found.lower, -torch.inf).amax(1)
        proved = values > 0
        empty = torch.zeros_like(proved)
        if found.state.empty is not None:
            empty = found.state.empty & ~proved
        self.counts.proved += int(proved.sum())
        self.counts.empty += int(empty.sum())
        left = ~(proved | empty)
        if bool(left.any()):
            self.chunks.append(Domains(found.state.take(left), values[left]))

    def _climbed(self, state: BoundState, steps: int) -> Question:
        """Optimise slopes and multipliers, in single precision: any that are in range are valid, so
        only the bound that they give needs more. What is left to be asked then."""
        climbing = Alpha(iterations=steps, stop_when=0.0)
        if self.coarse is not None:
            try:
                given = state.to(torch.float32)
                found = self.coarse.bounds(given, BETA_CROWN, "lower", climbing).state
                assert found is not None
                found = found.to(torch.float64)
                state = replace(state, alphas=found.alphas, betas=found.betas)
                return state, BETA_CROWN, "lower", Alpha(iterations=0)
            except (TypeError, RuntimeError) as error:
                if isinstance(error, BoundlabError):
                    raise
                self.coarse = None  # its graph has double precision written into it
        return state, BETA_CROWN, "lower", climbing

    # -- branching -----------------------------------------------------------------------------

    def _best_splits(self, state: BoundState, levels: int) -> tuple[Tensor, Tensor]:
        """The best elements to split, numbered over all nodes, and their scores: (domains,
        levels)."""
        scores = torch.cat(self._scores(state), 1)
        best = torch.topk(scores, min(levels, scores.shape[1]), 1)
        deep = int((best.values > 0).all(0).sum())  # all domains have so many
        deep = max(deep, 1)
        return best.indices[:, :deep], best.values[:, :deep]

    def _scores(self, state: BoundState) -> list[Tensor]:
        """How much a split of each element raises the lower of the two bounds, and a little of the
        higher: (domains, elements) for each node."""
        coarse = self.coarse or self.problem
        state = state.to(torch.float32 if self.coarse is not None else torch.float64)
        inner = {name: _moved_inward(x) for name, x in state.intervals.items()}
        with torch.enable_grad():
            found = coarse.bounds(replace(state, intervals=inner), SCORING, "lower")
            total = found.lower.amax(1).sum()
            ends = [end for name in self.readers for end in (inner[name].lower, inner[name].upper)]
            slopes: Sequence[Tensor | None] = [None] * len(ends)
            if total.requires_grad:  # else no relaxation depends on its interval
                slopes = torch.autograd.grad(total, ends, allow_unused=True)
        scores = []
        for number, (name, kinked) in enumerate(self.readers.items()):
            x = state.intervals[name]
            at = _split_points(x, kinked)
            up = _gain(slopes[2 * number], at - x.lower)
            down = _gain(slopes[2 * number + 1], at - x.upper)
            splits = (x.lower < at) & (at < x.upper)
            score = torch.minimum(up, down) + 0.1 * torch.maximum(up, down)
            score = torch.where(splits, score + 1e-12 * (x.upper - x.lower), 0)
            scores.append(score.flatten(1))
        return scores

    def _halved(self, state: BoundState, place: Tensor) -> BoundState:
        """Both sides of an element of each domain, numbered over all nodes."""
        sides = {1: state, -1: state}
        for name, kinked in self.readers.items():
            x = state.intervals[name]
            at = _split_points(x, kinked).flatten(1)
            here = (place >= 0) & (place < at.shape[1])
            if bool(here.any()):
                element = place[here]
                points = at[here].gather(1, element.unsqueeze(1)).squeeze(1)
                for sign in sides:
                    sides[sign] = sides[sign].split(name, element, sign, points, here)
            place = place - at.shape[1]
        return BoundState.join([sides[1], sides[-1]])


def _split_nodes(problem: Problem) -> dict[str, bool]:
    """The nodes whose elements may be split: those that a relaxation of one argument reads; and
    whether it has a kink at 0."""
    graph = problem.net.graph
    plan = problem.net.questions.plan(problem.regions)
    found: dict[str, bool] = {}
    for name in plan.nonlinear:
        sources = [one for one in plan.calls[name].names if one not in plan.sources]
        for source in sources:
            if graph.nodes[source].layout.batched:
                kinked = graph.nodes[name].op in KINKS
                found[source] = kinked and found.get(source, True)
    return {name: found[name] for name in graph.nodes if name in found}


def _split_points(x: Interval, kinked: bool) -> Tensor:
    """Where elements are split: at the kink, or in the middle."""
    if kinked:
        return torch.zeros_like(x.lower)
    return x.lower + (x.upper - x.lower) / 2


def _gain(slope: Tensor | None, move: Tensor) -> Tensor:
    if slope is None:
        return torch.zeros_like(move)
    return (slope * move).nan_to_num(0.0, 0.0, 0.0).clamp(min=0)


def _moved_inward(x: Interval) -> Interval:
    step = ASIDE * (x.upper - x.lower).nan_to_num(0.0, 0.0, 0.0)
    return Interval((x.lower + step).requires_grad_(), (x.upper - step).requires_grad_())


def _levels(domains: int, batch: int) -> int:
    """How often domains are split to make about as many as a batch has."""
    return max(int(math.log2(max(batch / domains, 2))), 1)
