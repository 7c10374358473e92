"""Domains decided by a solver, as mixed-integer programs; as linear ones where no sign of a ReLU is
open."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from boundlab.methods.state import BoundState
from boundlab.net.problem import Problem
from boundlab.relaxations.interval import Interval
from boundlab.verify.boxes import Boxes
from boundlab.verify.branch import of_domains, per_domain
from boundlab.verify.milp import Box, Encoding, Entering, encode, import_highspy, solve
from boundlab.verify.query import Query

MOST_OPEN, FEW_OPEN = 600, 150
"""ReLUs of open sign up to which a program is tried, and up to which it is decided in seconds more
often than not."""
FIRST_LAYER = 0.25
"""What a ReLU of the first layer counts beside one of a later layer: the interval of what enters it
is exact, and so is the relaxation of the layer."""


class ExactSearch:
    """Decides the domains of neuron splitting, if the network is made of ReLUs, is small, and the
    solver is installed."""

    def __init__(self, query: Query, problem: Problem, root: BoundState) -> None:
        """root: what is known of the whole region, which gives the solver its units."""
        self.boxes: Boxes = query.first_boxes()
        self.spec = query.rows.spec()
        plan = problem.net.questions.plan(problem.regions)
        self.encoding: Encoding | None = None
        if import_highspy() is not None and len(plan.sources) == 1:
            held = [name for name in root.intervals if root.layout(name).batched]
            ends = {name: _hull(per_domain(root, name)) for name in held}
            ends[plan.sources[0]] = _hull(Interval(self.boxes.lower, self.boxes.upper))
            plain = problem.plain
            plain.bounds(method="ibp", sides="lower")  # which finds the constants
            self.encoding = encode(plan, query.shape, plain.constants, ends)

    def can(self, state: BoundState) -> bool:
        """Whether all domains of a state are small enough to be tried."""
        return self.encoding is not None and int(self._open(state).sum(0).max()) <= MOST_OPEN

    def is_easy(self, state: BoundState) -> bool:
        """Whether all domains of a state are so small that the solver is likely to decide them."""
        if not self.can(state):
            return False
        first, *later = self._open(state)
        return float((FIRST_LAYER * first + sum(later)).max()) <= FEW_OPEN

    def _open(self, state: BoundState) -> Tensor:
        """The number of ReLUs of open sign: (layers, domains), at least one layer."""
        assert self.encoding is not None
        found = [torch.zeros(state.samples or 0, dtype=torch.int64)]  # of an affine model
        if self.encoding.layers:
            entering = [per_domain(state, layer.source) for layer in self.encoding.layers]
            found = [((x.lower < 0) & (x.upper > 0)).sum(1) for x in entering]
        return torch.stack(found)

    def decide(self, state: BoundState, domain: int, seconds: float) -> tuple[bool, Tensor | None]:
        """Whether a domain has no input at which all rows of its clause hold; or one (in,) that
        the solver takes for such an input."""
        assert self.encoding is not None and state.origin is not None
        clause = int(state.origin[domain])
        box = Box(
            self.boxes.lower[clause].numpy(),
            self.boxes.upper[clause].numpy(),
            tuple(_entering(state, layer.source, domain) for layer in self.encoding.layers),
        )
        found, point = solve(self.encoding, box, self.spec[clause].numpy(), seconds)
        if point is None:
            return found == "infeasible", None
        return False, torch.from_numpy(point)


def _hull(x: Interval) -> tuple[np.ndarray, np.ndarray]:
    """The ends of all domains together, (domains, elements) -> (elements,)."""
    return x.lower.amin(0).numpy(), x.upper.amax(0).numpy()


def _entering(state: BoundState, node: str, domain: int) -> Entering:
    """What is known of a node in one domain."""
    x = per_domain(state, node)
    lower, upper = x.lower[domain], x.upper[domain]
    split = torch.zeros_like(lower, dtype=torch.bool)
    if node in state.splits:
        split = of_domains(state, node, state.splits[node].sign)[domain] != 0
    return Entering(lower.numpy(), upper.numpy(), split.numpy())
