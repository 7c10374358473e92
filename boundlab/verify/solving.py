"""A solver beside the other searches: it is asked for whole clauses, and for the domains that
neuron splitting cannot split."""

from __future__ import annotations

import time

import torch

from boundlab.methods.state import BoundState
from boundlab.verify.exact import ExactSearch
from boundlab.verify.inputs import InputSplitting
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.query import Query, Try


class Solving:
    """Asks a solver about what neuron splitting has left open; clauses that it refutes leave the
    other searches."""

    def __init__(
        self, query: Query, inputs: InputSplitting, neurons: NeuronSplitting, try_points: Try
    ) -> None:
        assert neurons.root is not None
        self.exact = ExactSearch(query, neurons.problem, neurons.root)
        self.inputs = inputs
        self.neurons = neurons
        self.try_points = try_points
        self.found = False
        """Whether a point that the solver found ends the search."""

    @property
    def whole(self) -> BoundState:
        """The whole regions of the clauses that are open, with the intervals known by now."""
        assert self.neurons.root is not None
        return self.neurons.root.take(self.neurons.open_clauses)

    def is_easy(self) -> bool:
        """Whether the solver is likely to decide all open clauses."""
        return self.exact.is_easy(self.whole)

    def clauses(self, seconds: float) -> int:
        """How many open clauses the solver refutes; each gets a share of the time."""
        whole = self.whole
        if not self.exact.can(whole):
            return 0
        assert whole.origin is not None
        end, refuted = time.monotonic() + seconds, 0
        for number, clause in enumerate(whole.origin.tolist()):
            now = time.monotonic()
            if now > end or self.found:
                break
            share = (end - now) / (len(whole.origin) - number)
            is_refuted, point = self.exact.decide(whole, number, share)
            if is_refuted:
                refuted += 1
                self.neurons.refute(clause)
                self.inputs.refute(clause)
            elif point is not None:
                self.found = self.try_points(point[None], torch.tensor([clause]))
        return refuted

    def leaves(self, seconds: float) -> int:
        """How many of the domains that cannot be split the solver refutes, the worst ones first."""
        domains = self.neurons.take_stuck()
        if domains is None:
            return 0
        end = time.monotonic() + seconds
        left = torch.ones(len(domains), dtype=torch.bool)
        if self.exact.can(domains.state):
            for number in domains.bound.argsort().tolist():
                now = time.monotonic()
                if now > end or self.found:
                    break
                is_refuted, point = self.exact.decide(domains.state, number, end - now)
                left[number] = not is_refuted
                if point is not None:
                    origin = domains.origin[number : number + 1]
                    self.found = self.try_points(point[None], origin)
        refuted = int((~left).sum())
        self.neurons.put_back(domains.take(left), refuted)
        return refuted
