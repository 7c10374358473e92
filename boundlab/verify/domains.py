"""Domains: parts of a region that constraints ``sign * (h - at) >= 0`` on elements h of nodes cut
out. They make relaxations tighter, and beta-CROWN's multipliers let them count in the backward
pass. Domains are samples of a :class:`~boundlab.methods.state.BoundState`, which carries intervals,
slopes and multipliers from parents to children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.errors import BoundlabError
from boundlab.methods.alpha import Alpha
from boundlab.methods.method import Method
from boundlab.methods.state import BoundState
from boundlab.net.problem import Problem
from boundlab.verify.branch import Brancher, Splits
from boundlab.verify.trials import best_tried

BETA_CROWN = Method("beta-crown", "interval", "backward", optimize=True)

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
    def origin(self) -> Tensor:
        """(domains,): which sample of the problem each is a part of."""
        assert self.state.origin is not None
        return self.state.origin

    @property
    def nbytes(self) -> int:
        return self.state.nbytes + self.bound.nbytes

    def take(self, chosen: Tensor) -> Domains:
        return Domains(self.state.take(chosen), self.bound[chosen])

    @staticmethod
    def join(parts: Sequence[Domains]) -> Domains:
        filled = [part for part in parts if len(part)] or parts[:1]
        if len(filled) == 1:
            return filled[0]
        states = [part.state for part in filled]
        return Domains(BoundState.join(states), torch.cat([part.bound for part in filled]))


class DomainBounder:
    """Splits the domains of a problem and bounds them. Slopes and multipliers are optimised in
    single precision, as splits are chosen: any that are in range are valid, so only the bound that
    they give needs more."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.coarse: Problem | None = problem.to(torch.float32)
        self.brancher = Brancher.of(problem.plain)  # which only chooses

    @torch.no_grad()
    def bounded(self, state: BoundState, steps: int, enough: float | None = 0.0) -> Domains:
        """Domains with bounds by some steps of ascent, which end at a bound that is enough. What
        is not finite is no bound, but for empty domains: theirs is infinite."""
        found = self.problem.bounds(*self._climbed(state, steps, enough))
        assert found.state is not None
        bound = torch.where(found.lower.isfinite(), found.lower, -torch.inf).amax(1)
        bound = torch.where(found.state.known_empty(), torch.inf, bound)
        return Domains(self._without_implied(found.state), bound)

    def _without_implied(self, state: BoundState) -> BoundState:
        """A state without the intervals that follow from others: what is left are those that
        relaxations read, and those of nodes with slopes or multipliers."""
        stacks = (*state.alphas.values(), *state.betas.values())
        return state.only({*self.brancher.nodes(state), *(name for one in stacks for name in one)})

    def _climbed(self, state: BoundState, steps: int, enough: float | None) -> Question:
        """What is left to be asked after slopes and multipliers are optimised."""
        climbing = Alpha(iterations=steps, stop_when=enough)
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

    @torch.no_grad()
    def best_splits(self, state: BoundState, levels: int) -> Splits:
        """The best elements to split of each domain."""
        if self.coarse is None:
            return best_tried(self.brancher, state, levels)
        coarse = replace(self.brancher, problem=self.coarse)
        return best_tried(coarse, state.to(torch.float32), levels)

    def halved(self, state: BoundState, splits: Splits) -> BoundState:
        """Both sides of one element of each domain after the other: (2 ** levels * domains)."""
        for level in range(splits.places.shape[1]):
            copies = 2**level
            place, point = splits.places[:, level], splits.points[:, level].double()
            state = self.brancher.halved(state, place.repeat(copies), point.repeat(copies))
        return state
