"""The clauses that are open, one after the other, as mixed-integer programs."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from boundlab.methods.state import BoundState
from boundlab.net.problem import Problem
from boundlab.verify.milp import Box, Encoding, encode, import_highspy, solve
from boundlab.verify.pool import Boxes
from boundlab.verify.query import Query

MOST_OPEN = 600
"""ReLUs of open sign up to which a program is tried."""

Try = Callable[[Tensor, Tensor], bool]


class ExactSearch:
    """Decides clauses by a solver. state: intervals of all nodes, a sample for each clause."""

    def __init__(self, query: Query, problem: Problem, state: BoundState) -> None:
        self.boxes: Boxes = query.first_boxes()
        self.spec = query.rows.spec()
        self.state = state
        plan = problem.net.questions.plan(problem.regions)
        self.encoding: Encoding | None = None
        if import_highspy() is not None and len(plan.sources) == 1:
            self.encoding = encode(plan, query.shape, problem.constants)

    def unstable(self, clause: int) -> int:
        """How many ReLUs have an open sign."""
        if self.encoding is None:
            return MOST_OPEN + 1
        ends = [self._ends(layer.source, clause) for layer in self.encoding.layers]
        return sum(int(((low < 0) & (up > 0)).sum()) for low, up in ends)

    def _ends(self, node: str, clause: int) -> tuple[Tensor, Tensor]:
        x = self.state.intervals[node]
        return x.lower[clause].flatten(), x.upper[clause].flatten()

    def is_worth_it(self, clauses: Tensor) -> bool:
        counts = [self.unstable(one) for one in clauses.tolist()]
        return max(counts, default=0) <= MOST_OPEN

    def run(self, clauses: Tensor, seconds: float, try_points: Try) -> tuple[int, bool]:
        """How many of some clauses are refuted, and whether a counterexample was found."""
        assert self.encoding is not None
        end = time.monotonic() + seconds
        refuted = 0
        for clause in clauses.tolist():
            ends = [self._ends(layer.source, clause) for layer in self.encoding.layers]
            box = Box(
                self.boxes.lower[clause].numpy(),
                self.boxes.upper[clause].numpy(),
                tuple((low.numpy(), up.numpy()) for low, up in ends),
            )
            left = end - time.monotonic()
            found, point = solve(self.encoding, box, self.spec[clause].numpy(), left)
            refuted += found == "infeasible"
            if point is not None:
                x = torch.from_numpy(point).unsqueeze(0)
                if try_points(x, torch.tensor([clause])):
                    return refuted, True
        return refuted, False
