"""Branch and bound over neurons: a batch of the worst domains is split at the elements that matter
most, and the children are bounded together."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch
from torch import Tensor

from boundlab.errors import MemoryLimit, TimeLimit
from boundlab.methods.alpha import Alpha
from boundlab.methods.deadline import until
from boundlab.methods.state import BoundState
from boundlab.verify.batch import BatchSize
from boundlab.verify.bound import FORWARD
from boundlab.verify.counts import Counts
from boundlab.verify.domains import DomainBounder, Domains
from boundlab.verify.query import Query, Try, nothing
from boundlab.verify.tighten import Tightening
from boundlab.verify.trend import Trend

ROOT_STEPS, STEPS = 30, 7
"""Steps of the ascent for the first domains, and for children."""
ROOT_SHARE = 0.3
"""Share of the time that is left that alpha-crown may take for the intervals of all nodes."""
BATCH, SMALLEST, LARGEST = 32, 4, 2048
"""Children of the first round, and how many are bounded at once."""
ROUND_SECONDS = 1.0
"""How long bounding a batch should take."""
MEMORY = 4 << 30
"""Bytes of open domains from which on those closest to a proof are split first, so that there are
not many more; twice as many end the search."""
WORTH = 0.1
"""Share of what whole regions lack to a proof that tighter intervals must gain to be worth more."""


class NeuronSplitting:
    """The search over constraints on neurons. Its problem has the rows of every clause, as
    samples. try_points: is shown where lines are least."""

    def __init__(self, query: Query, deadline: float, try_points: Try = nothing) -> None:
        self.query = query
        self.try_points = try_points
        self.found = False
        self.problem = query.problem()
        self.bounder = DomainBounder(self.problem)
        self.deadline = deadline
        self.chunks: list[Domains] = []
        self.counts = Counts()
        self.batch = BatchSize(BATCH, SMALLEST, LARGEST, ROUND_SECONDS)
        self.trend = Trend()
        self.root: BoundState | None = None
        self.root_bound = -math.inf
        """The least bound of the open clauses over whole regions."""
        self.stuck: list[Domains] = []
        """Domains that cannot be split."""
        self.not_bounded = torch.zeros(0, dtype=torch.int64)
        """Clauses for which the time was not enough."""

    @property
    def open(self) -> int:
        return sum(map(len, [*self.chunks, *self.stuck])) + len(self.not_bounded)

    @property
    def open_clauses(self) -> Tensor:
        """The clauses that have open domains (numbers)."""
        origins = [part.origin for part in (*self.chunks, *self.stuck)]
        return torch.cat([self.not_bounded, *origins]).unique()

    @property
    def bound(self) -> float:
        """The least bound of all that is open."""
        if len(self.not_bounded):
            return -math.inf
        parts = [*self.chunks, *self.stuck]
        return min((float(part.bound.min()) for part in parts), default=math.inf)

    @property
    def nbytes(self) -> int:
        return sum(chunk.nbytes for chunk in self.chunks)

    @property
    def is_full(self) -> bool:
        return self.nbytes > 2 * MEMORY

    @property
    def is_over(self) -> bool:
        is_late = time.monotonic() > self.deadline
        return self.found or not self.chunks or self.is_full or is_late

    @property
    def is_stuck(self) -> bool:
        """Whether more time would not help."""
        return self.is_full or not self.chunks

    @property
    def is_proved(self) -> bool:
        is_done = not self.open and self.counts.opened > 0
        return is_done and not self.found and self.counts.add_up(0)

    @torch.no_grad()
    def begin(self, chosen: Tensor) -> None:
        """Bound some clauses (numbers) with optimised slopes; they stay open if the time is not
        enough for that."""
        self.counts.opened += len(chosen)
        try:
            with until(self.deadline):
                self._keep(self._first_domains(chosen, None))
        except (TimeLimit, MemoryLimit):
            self.not_bounded = chosen

    def _first_domains(self, chosen: Tensor, known: BoundState | None) -> Domains:
        """Whole cases for some clauses. known: intervals of nodes over the boxes of all cases."""
        self.cases = self._bounded_cases(chosen, known)
        clauses = self.cases.take(self.query.rows.case)
        basis = self.problem.begun.basis
        origin = torch.arange(len(self.query.rows))
        self.root = replace(clauses, alphas={}, betas={}, origin=origin, basis=basis)
        first = self.bounder.bounded(self.root.take(chosen), ROOT_STEPS)
        self.root_bound = float(first.bound.min())
        return first

    def _bounded_cases(self, chosen: Tensor, known: BoundState | None) -> BoundState:
        """Intervals of all nodes over the boxes of all cases, which all clauses of a case share: by
        alpha-crown, or by crown if that takes too long."""
        problem = self.query.case_problem(chosen)
        begin = None
        if known is not None:
            begin = replace(known, alphas={}, betas={}, basis=problem.begun.basis)
        elif self.query.movable <= FORWARD:
            begin = problem.bounds(None, "forward+backward", "lower").state
        left = self.deadline - time.monotonic()
        alpha = Alpha(iterations=ROOT_STEPS, stop_when=0.0)
        try:
            with until(time.monotonic() + ROOT_SHARE * left):
                found = problem.bounds(begin, "alpha-crown", "lower", alpha).state
        except (TimeLimit, MemoryLimit):
            found = problem.bounds(begin, "crown", "lower").state
        assert found is not None
        return found

    @property
    def expected_seconds(self) -> float:
        """How much longer the search takes, as far as its bound tells."""
        return self.trend.expected_seconds

    @torch.no_grad()
    def tighten(self, seconds: float) -> bool:
        """Make the intervals of all nodes tighter; whether more of that is worth its time. The
        search begins anew where bounds of whole regions become better than what splits reached."""
        if self.root is None or not self.open or not self.counts.add_up(self.open):
            return False
        chosen, brancher = self.open_clauses, self.bounder.brancher
        end = min(time.monotonic() + seconds, self.deadline)
        before = self.root_bound
        try:
            with until(self.deadline):
                work = Tightening.of(self.query, self.cases, brancher, self.root.take(chosen))
                work.run(end)
                first = self._first_domains(chosen, work.cases)
        except (TimeLimit, MemoryLimit):
            return False
        if self.root_bound > self.bound:
            self.counts.opened += len(first) - self.open
            self.chunks, self.stuck, self.not_bounded = [], [], chosen[:0]
            self.trend = Trend()
            self._keep(first)
        else:
            self.chunks = [self._with_intervals_of_cases(chunk) for chunk in self.chunks]
        return not self.root_bound - before < -WORTH * before

    def _with_intervals_of_cases(self, domains: Domains) -> Domains:
        """Domains with what is known of the whole boxes of their cases."""
        own = self.cases.take(self.query.rows.case[domains.origin])
        known = {name: own.intervals[name] for name in self.bounder.brancher.nodes(own)}
        return replace(domains, state=domains.state.with_known(known))

    def run(self, seconds: float = math.inf) -> None:
        """Search until all is decided, or for some seconds."""
        end = time.monotonic() + seconds
        while not self.is_over and time.monotonic() < end:
            self.round()

    @torch.no_grad()
    def round(self) -> None:
        """Split the worst domains and bound what they are split into."""
        parents = self._pick(max(self.batch.size // 2, 1))
        start = time.monotonic()
        before = replace(self.counts)
        try:
            with until(self.deadline):
                self._split(parents)
        except (MemoryLimit, TimeLimit):
            self.batch.shrink()
            self.counts = before
            self.chunks.append(parents)
            return
        count, seconds = self.counts.opened - before.opened, time.monotonic() - start
        self.batch.follow(count, seconds)
        self.trend.note(count, self.bound, seconds)

    def _split(self, parents: Domains) -> None:
        """Bound the children of domains; those without an element to split stay open for ever."""
        levels = _levels(len(parents), self.batch.size)
        splits = self.bounder.best_splits(parents.state, levels)
        self.found = self.found or self.try_points(splits.corners.double(), parents.origin)
        free = splits.can
        if bool(free.any()):
            chosen, given = splits.take(free), parents.take(free)
            children = self.bounder.bounded(self.bounder.halved(given.state, chosen), STEPS)
            copies = 2 ** chosen.places.shape[1]
            # what holds for a parent holds for its children
            inherited = torch.maximum(children.bound, given.bound.repeat(copies))
            self.counts.split += len(given)
            self.counts.opened += len(given) * copies
            self._keep(replace(children, bound=inherited))
        if not bool(free.all()):
            self.stuck.append(parents.take(~free))

    def refute(self, clause: int) -> None:
        """Another search has shown that a clause has no counterexample: its open domains count as
        proved."""
        self.counts.proved += int((self.not_bounded == clause).sum())
        self.not_bounded = self.not_bounded[self.not_bounded != clause]
        for parts in (self.chunks, self.stuck):
            self.counts.proved += sum(int((part.origin == clause).sum()) for part in parts)
            parts[:] = [part.take(part.origin != clause) for part in parts]
            parts[:] = [part for part in parts if len(part)]

    def take_stuck(self) -> Domains | None:
        """Hand over the domains that cannot be split; they must be put back."""
        if not self.stuck:
            return None
        taken = Domains.join(self.stuck)
        self.stuck = []
        return taken

    def put_back(self, domains: Domains, proved: int) -> None:
        """The domains that were handed over and are still open, and how many were proved."""
        self.counts.proved += proved
        if len(domains):
            self.stuck.append(domains)

    def _pick(self, count: int) -> Domains:
        """Take out domains with the least bounds; with the largest ones where memory is scarce."""
        sign = 1
        if self.nbytes > MEMORY:
            sign = -1
        self.chunks.sort(key=lambda chunk: float((sign * chunk.bound).min()), reverse=True)
        parts: list[Domains] = []
        while self.chunks and sum(map(len, parts)) < count:
            parts.append(self.chunks.pop())
        found = Domains.join(parts)
        if len(found) <= count:
            return found
        order = (sign * found.bound).argsort()
        self.chunks.append(found.take(order[count:]))
        return found.take(order[:count])

    def _keep(self, domains: Domains) -> None:
        """Count the domains that are decided, and keep the others."""
        decided = domains.bound > 0
        empty = int(domains.state.known_empty().sum())
        self.counts.proved += int(decided.sum()) - empty
        self.counts.empty += empty
        if not bool(decided.all()):
            self.chunks.append(domains.take(~decided))


def _levels(domains: int, batch: int) -> int:
    """How often domains are split to make about as many as a batch has."""
    return max(int(math.log2(max(batch / domains, 2))), 1)
