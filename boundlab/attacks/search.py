"""The search for violations by descents from many points."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundlab.attacks.descent import knows_members, moved, pulled_inside, vertex
from boundlab.attacks.goals import Goal
from boundlab.attacks.surrogates import LeakyGradients
from boundlab.attacks.targets import Target
from boundlab.regions import Region
from boundlab.regions.base import with_tensors

POINTS = 64
"""Points that move together, if there are not more samples than that."""
LOOK = 8
"""Random members that are looked at for each point that moves."""
PASSES = 4
"""Passes of the model that must fit into the time, where it is slow, with the points that move."""


@dataclass(frozen=True)
class Budget:
    """steps: of a descent. restarts: descents for each sample. deadline: by time.monotonic()."""

    steps: int
    restarts: int
    deadline: float = float("inf")

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline

    def points(self, seconds: float) -> int:
        """How many points may move together if one takes so many seconds to look at: fewer only
        where not even a look at all of them would fit into the time."""
        left = self.deadline - time.monotonic()
        if POINTS * seconds <= left:
            return POINTS
        return min(max(int(left / (PASSES * seconds)), 1), POINTS)


class Search:
    """The search in a region, one set a sample. best, margin: for each sample the member that is
    closest to a violation, and how far it is: (samples, *shape), (samples,)."""

    def __init__(
        self, target: Target, region: Region, goal: Goal, budget: Budget, generator: torch.Generator
    ) -> None:
        self.target = target
        self.given = region
        self.region = with_tensors(region, lambda tensor: _in_type(tensor, target.dtype))
        self.goal = goal
        self.budget = budget
        self.generator = generator
        self.samples = len(region.centre)
        self.left = budget.restarts
        self.best = region.centre.clone()
        device = region.centre.device
        self.margin = torch.full((self.samples,), torch.inf, dtype=torch.float64, device=device)
        self.violated = torch.zeros_like(self.margin, dtype=torch.bool)
        self._rounds = 0
        self._seconds = 0.0
        """What a look at a sample took."""
        self._projects = self.region.project(self.region.centre) is not None

    @property
    def is_over(self) -> bool:
        return self.left <= 0 or self.budget.is_over or bool(self.violated.all())

    def round(self) -> None:
        """Some descents for each sample without a violation, together."""
        self._rounds += 1
        if self._rounds == 1 and knows_members(self.given):
            everyone = torch.arange(self.samples, device=self.margin.device)
            start = time.monotonic()
            self._look(everyone, self.region.centre)
            self._seconds = (time.monotonic() - start) / max(self.samples, 1)
        open_ones = (~self.violated).nonzero().flatten()
        if not len(open_ones):
            return
        copies = min(max(self.budget.points(self._seconds) // len(open_ones), 1), self.left)
        owner = open_ones.repeat(copies)
        region = self.region.samples(owner)
        if region is None:  # a region that cannot be taken apart is attacked as a whole
            copies, region = 1, self.region
            owner = torch.arange(self.samples, device=self.margin.device)
        self.left -= copies
        self._descend(region, owner)

    # -- points --------------------------------------------------------------------------------

    @torch.no_grad()
    def _look(self, owner: Tensor, x: Tensor) -> Tensor:
        """The margins of points (points, clauses), after noting what they show."""
        y = self.target(x)
        found = self.goal.margins(self.goal.excess(x, y, owner))
        self._note(owner, x, found.amin(1))
        return found

    def _starts(self, region: Region, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Points to begin at and the clauses that they are for: of some random members and vertices
        the one that is closest to the clause. Clauses that look near are chosen by more points; the
        first copy of every sample follows whichever is nearest (-1)."""
        looks = []
        for number in range(LOOK):
            x = region.sample(self.generator)
            if number % 2:
                x = vertex(region, self._noise(x))
            if self._rounds % 4 == 3:
                x = self._near_best(region, owner, x)
            looks.append((x, self._look(owner, x).nan_to_num(torch.inf)))
            if self.budget.is_over or bool(self.violated.all()):
                break
        margins = torch.stack([one for _, one in looks])  # (looks, points, clauses)
        chosen = self._clauses(margins.amin(0), owner)
        index = chosen.clamp(min=0).expand(len(looks), 1, -1).transpose(1, 2)
        wanted = margins.gather(2, index).squeeze(2)
        wanted = torch.where(chosen < 0, margins.amin(2), wanted)
        nearest = wanted.argmin(0)  # (points,)
        points = torch.stack([x for x, _ in looks])
        return points[nearest, torch.arange(len(owner), device=owner.device)], chosen

    def _near_best(self, region: Region, owner: Tensor, x: Tensor) -> Tensor:
        """Points between members and the best that are known for their samples, at random
        distances; the members where such points cannot be made."""
        best = self.best[owner].to(x)
        share = torch.rand(len(x), generator=self.generator).to(x) ** 4
        between = region.project(best + share.reshape(-1, *[1] * (x.dim() - 1)) * (x - best))
        return x if between is None else between

    def _clauses(self, margins: Tensor, owner: Tensor) -> Tensor:
        """A clause for each point, in turn by how near they are for its sample: (points,)."""
        near = torch.full((self.samples, margins.shape[1]), torch.inf, device=margins.device)
        index = owner[:, None].expand(margins.shape)
        near = near.to(margins).scatter_reduce(0, index, margins, "amin")
        order = near.argsort(1)
        reachable = near.isfinite().sum(1).clamp(min=1)
        same = owner[:, None] == owner
        turn = same.tril(-1).sum(1)  # how many points of the sample stand before this one
        rank = (turn - 1).clamp(min=0) % reachable[owner]
        chosen = order[owner, rank]
        return torch.where(turn == 0, -1, chosen)

    def _descend(self, region: Region, owner: Tensor) -> None:
        x, chosen = self._starts(region, owner)
        for step in range(self.budget.steps + 1):
            if self.budget.is_over or bool(self.violated[owner].all()):
                return
            slope = self._slope(x, owner, chosen)
            goal = vertex(region, slope)
            if not self._projects:  # between vertices there may be no members
                self._look(owner, goal)
            if step < self.budget.steps:
                x = moved(region, x, slope, goal, step, self.budget.steps)

    def _slope(self, x: Tensor, owner: Tensor, chosen: Tensor) -> Tensor:
        """The gradient of what the chosen clauses lack, after noting what the points show; noise
        where there is none."""
        with torch.enable_grad(), self._gradients():
            x = x.detach().requires_grad_()
            excess = self.goal.excess(x, self.target(x), owner)
            margins = self.goal.margins(excess.detach())
            if knows_members(self.given):
                self._note(owner, x.detach(), margins.amin(1))
            clause = torch.where(chosen < 0, margins.nan_to_num(torch.inf).argmin(1), chosen)
            loss = self.goal.loss(excess, clause).sum()
            if not loss.requires_grad:
                return self._noise(x)
            (slope,) = torch.autograd.grad(loss, x)
        slope = slope.nan_to_num(0.0, 0.0, 0.0)
        flat = (slope == 0).flatten(1).all(1).reshape(-1, *[1] * (x.dim() - 1))
        return torch.where(flat, self._noise(x), slope)

    def _gradients(self) -> AbstractContextManager[Any]:
        """Every other round leads through ReLUs that are off."""
        return LeakyGradients() if self._rounds % 2 == 0 else nullcontext()

    def _noise(self, like: Tensor) -> Tensor:
        drawn = torch.randn(like.shape, generator=self.generator, dtype=like.dtype)
        return drawn.to(like.device)

    # -- what was found --------------------------------------------------------------------------

    def _note(self, owner: Tensor, x: Tensor, margin: Tensor) -> None:
        """Keep the best point of every sample, if it is a member of the region as it was given and
        is what it seems to be there."""
        margin = margin.nan_to_num(torch.inf).to(self.margin)
        least = torch.full_like(self.margin, torch.inf).scatter_reduce(0, owner, margin, "amin")
        better = (least < self.margin).nonzero().flatten()
        if not len(better):
            return
        first = (margin == least[owner]).nonzero().flatten()
        place = torch.zeros_like(self.violated, dtype=torch.int64)
        place[owner[first.flip(0)]] = first.flip(0)
        self._confirm(better, x[place[better]])

    @torch.no_grad()
    def _confirm(self, samples: Tensor, x: Tensor) -> None:
        """Judge points, one of each of some samples, on the region as it was given."""
        region = self.given.samples(samples)
        if region is None:
            everyone = self.best.clone()
            everyone[samples] = x.to(everyone)
            region, x = self.given, everyone
            samples = torch.arange(self.samples, device=samples.device)
        x, member = pulled_inside(region, x.to(self.best))
        excess = self.goal.excess(x, self.target(x), samples)
        margin = self.goal.margins(excess).amin(1).to(self.margin).nan_to_num(torch.inf)
        good = member & (margin < self.margin[samples])
        kept = samples[good]
        self.best[kept] = x[good]
        self.margin[kept] = margin[good]
        self.violated[kept] = self.goal.violated(excess)[good].to(self.violated.device)


def _in_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
