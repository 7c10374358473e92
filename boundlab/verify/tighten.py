"""Intervals of nodes made tighter by splitting the nodes before them.

Bounds of an element h of a node, over a whole region, are the least of those over the domains of
any split of the region. A few splits of the elements that matter most for h raise them by far where
few layers lie before it, and every node behind gains from that: in narrow, deep networks more than
from splits for the output alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.errors import MemoryLimit, TimeLimit
from boundlab.methods.deadline import until
from boundlab.methods.state import BoundState
from boundlab.relaxations.interval import Interval
from boundlab.verify.batch import BatchSize
from boundlab.verify.branch import Brancher, gain, per_domain
from boundlab.verify.domains import DomainBounder, Domains
from boundlab.verify.query import Query

ROWS = 512
"""Ends of intervals that are made tighter, of each node."""
BATCH, SMALLEST, LARGEST = 256, 16, 1024
"""Domains that are split at once, if there are not more rows: at first, and later."""
ROUND_SECONDS = 0.3
"""How long bounding a batch should take."""
FIRST_STEPS, STEPS = 10, 4
"""Steps of the ascent for whole regions, and for children."""


@dataclass(frozen=True, eq=False)
class Ends:
    """Ends of the intervals of a node: sign * element over the box of a case, all (rows,); sign 1
    stands for a lower end, -1 for an upper one."""

    node: str
    case: Tensor
    element: Tensor
    sign: Tensor

    def __len__(self) -> int:
        return len(self.case)

    def spec(self, cases: BoundState) -> Tensor:
        """Coefficients of the node, one row for each end: (rows, 1, elements)."""
        size = per_domain(cases, self.node).lower.shape[1]
        rows = torch.zeros(len(self), 1, size, dtype=torch.float64)
        rows[torch.arange(len(self)), 0, self.element] = self.sign.double()
        return rows

    def of(self, cases: BoundState) -> Tensor:
        """The lower bounds that are known: (rows,)."""
        x = per_domain(cases, self.node)
        lower, upper = x.lower[self.case, self.element], x.upper[self.case, self.element]
        return torch.where(self.sign > 0, lower, -upper)

    def put(self, cases: BoundState, bound: Tensor) -> BoundState:
        """The state with what was found: bounds (rows,), where they are finite."""
        x = per_domain(cases, self.node)
        bound = torch.where(bound.isfinite(), bound, -torch.inf).to(x.lower)
        lower = torch.full_like(x.lower, -torch.inf)
        upper = torch.full_like(x.upper, torch.inf)
        below, above = self.sign > 0, self.sign < 0
        lower[self.case[below], self.element[below]] = bound[below]
        upper[self.case[above], self.element[above]] = -bound[above]
        place = cases.layout(self.node).place
        shape = cases.intervals[self.node].shape
        found = Interval(place(lower[None], shape)[0], place(upper[None], shape)[0])
        return cases.with_known({self.node: found})


class Leaves:
    """The parts that the region of every row is split into. open: domains that may be split
    further, whose origin is the row; least (rows,): the least bound of those that need not be."""

    def __init__(self, first: Domains, rows: int, enough: float) -> None:
        self.enough = enough
        self.least = torch.full((rows,), torch.inf, dtype=torch.float64)
        self.open = first
        self._settle(torch.zeros(len(first), dtype=torch.bool))

    def worst(self, count: int) -> Tensor:
        """The ``count`` open domains of each row with the least bounds, as a mask."""
        order = self.open.bound.argsort(stable=True)
        order = order[self.open.origin[order].argsort(stable=True)]
        rows = self.open.origin[order]
        rank = torch.arange(len(rows)) - torch.searchsorted(rows, rows)
        chosen = torch.zeros(len(rows), dtype=torch.bool)
        chosen[order[rank < count]] = True
        return chosen

    def grow(self, parents: Tensor, children: Domains, stuck: Domains) -> None:
        """Put children in the place of some open domains (mask), and ``stuck`` ones, which cannot
        be split."""
        kept = self.open.take(~parents)
        self.open = Domains.join([kept, children, stuck])
        last = torch.arange(len(self.open)) >= len(kept) + len(children)
        self._settle(last)

    def _settle(self, done: Tensor) -> None:
        """Leave those of the open domains as they are that are done (mask), have a bound that is
        enough, or one that no split can make the least of its row."""
        done = done | (self.open.bound > self.enough)
        self.least.scatter_reduce_(0, self.open.origin[done], self.open.bound[done], "amin")
        above = self.open.bound >= self.least[self.open.origin]
        self.open = self.open.take(~(done | above))

    def bounds(self) -> Tensor:
        """The least bounds of all leaves: (rows,)."""
        return self.least.scatter_reduce(0, self.open.origin, self.open.bound, "amin")


class Tightening:
    """Makes the intervals of nodes over the boxes of cases tighter. cases: their state; nodes: that
    may be split, and whether at 0; gains: how much bounds gain from the ends of their intervals,
    (cases, elements)."""

    def __init__(
        self, query: Query, cases: BoundState, nodes: dict[str, bool], gains: dict[str, Interval]
    ) -> None:
        self.query = query
        self.cases = cases
        self.nodes = nodes
        self.gains = gains
        self.splits = 0

    @staticmethod
    def of(query: Query, cases: BoundState, brancher: Brancher, clauses: BoundState) -> Tightening:
        """clauses: the first domains of the clauses that are open."""
        assert clauses.origin is not None
        case = query.rows.case[clauses.origin]
        gains = {}
        for name, slopes in brancher.look(clauses).slopes.items():
            width = per_domain(clauses, name)
            room = width.upper - width.lower
            of_ends = [gain(slopes.lower, room), gain(slopes.upper, -room)]
            start = room.new_zeros(len(query.boxes), room.shape[1])
            gains[name] = Interval(*(start.index_add(0, case, part) for part in of_ends))
        return Tightening(query, cases, brancher.nodes(clauses), gains)

    @torch.no_grad()
    def run(self, deadline: float) -> None:
        """Tighten one node after the other, each for a share of the time."""
        plan = self.query.net.questions.plan(self.query.problem().regions)
        nodes = [name for name in self.nodes if name not in plan.affine_only]
        for number, node in enumerate(nodes):
            now = time.monotonic()
            end = now + (deadline - now) / (len(nodes) - number)
            try:
                with until(end):
                    self._tighten(node, end)
            except (TimeLimit, MemoryLimit):
                continue  # not even the first bounds were found

    def _tighten(self, node: str, end: float) -> None:
        ends = self._chosen(node)
        if not len(ends):
            return
        problem = self.query.node_problem(node, ends.case, ends.spec(self.cases))
        tree = Tree(DomainBounder(problem), self._enough(node))
        tree.begin(self.cases, ends)
        while len(tree.leaves.open) and time.monotonic() < end:
            try:
                self.splits += tree.round()
            except (TimeLimit, MemoryLimit):
                break
        self.cases = ends.put(self.cases, tree.leaves.bounds())

    def _enough(self, node: str) -> float:
        """The bound of an end beyond which more is of no use: where the relaxations that read the
        node are exact."""
        if self.nodes[node]:
            return 0.0
        return torch.inf

    def _chosen(self, node: str) -> Ends:
        """The ends that bounds gain most from, of the elements that are split."""
        x, gains = per_domain(self.cases, node), self.gains[node]
        free = x.lower < x.upper
        if self.nodes[node]:
            free = (x.lower < 0) & (x.upper > 0)
        both = torch.stack([gains.lower, gains.upper])  # (sides, cases, elements)
        both = torch.where(free, both, -1.0).flatten()
        best = torch.topk(both, min(ROWS, len(both)))
        place = best.indices[best.values >= 0]
        side, case, element = (part for part in torch.unravel_index(place, (2, *free.shape)))
        return Ends(node, case, element, 1 - 2 * side)


class Tree:
    """Splits of the regions of ends, each until its bound is enough."""

    def __init__(self, bounder: DomainBounder, enough: float) -> None:
        self.bounder = bounder
        self.enough = enough
        self.batch = BatchSize(BATCH, SMALLEST, LARGEST, ROUND_SECONDS)

    def begin(self, cases: BoundState, ends: Ends) -> None:
        """Bound whole regions."""
        known = {name: cases.intervals[name] for name in self.bounder.brancher.nodes(cases)}
        state = replace(cases, intervals=known, alphas={}, betas={}, splits={}).take(ends.case)
        basis = self.bounder.problem.begun.basis
        state = replace(state, origin=torch.arange(len(ends)), basis=basis)
        first = self.bounder.bounded(state, FIRST_STEPS, self.enough)
        known_bound = torch.maximum(first.bound, ends.of(cases))
        self.leaves = Leaves(replace(first, bound=known_bound), len(ends), self.enough)

    def round(self) -> int:
        """Split the worst leaves of every row; how many."""
        start = time.monotonic()
        rows = len(self.leaves.open.origin.unique())
        chosen = self.leaves.worst(max(self.batch.size // rows, 1))
        parents = self.leaves.open.take(chosen)
        splits = self.bounder.best_splits(parents.state, 1)
        split, stuck = parents.take(splits.can), parents.take(~splits.can)
        children = split
        if len(split):
            halves = self.bounder.halved(split.state, splits.take(splits.can))
            children = self.bounder.bounded(halves, STEPS, self.enough)
            inherited = torch.maximum(children.bound, split.bound.repeat(2))
            children = replace(children, bound=inherited)
        self.leaves.grow(chosen, children, stuck)
        self.batch.follow(len(parents), time.monotonic() - start)
        return len(split)
