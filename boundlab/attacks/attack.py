"""``bl.attack``: projected gradient descent for counterexamples."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from boundlab.attacks.goals import Goal, OtherClass, UnsafeSet
from boundlab.attacks.search import Budget, Search
from boundlab.attacks.targets import Model, Target
from boundlab.errors import ArgumentError
from boundlab.regions import Region
from boundlab.regions.base import with_tensors
from boundlab.specs.labels import Labels, read_labels
from boundlab.specs.property import Case, Property

PROPERTY_SECONDS = 8.0
"""How long a property is attacked if nothing is said."""
RESTARTS = 10
"""Descents for each sample with a label if nothing is said."""


@dataclass(frozen=True, eq=False)
class Attack:
    """What an attack found, one entry a sample; for a property one in all.

    inputs (samples, *shape): the member of the region that is closest to a violation, or is one.
    outputs (samples, *outputs): those of the model itself at these inputs. violated (samples,):
    whether they are violations, judged on these outputs. margin (samples,): how far the outputs are
    from a violation; by how much it is one where it is negative.
    """

    inputs: Tensor
    outputs: Tensor
    violated: Tensor
    margin: Tensor

    def __str__(self) -> str:
        count, found = len(self.violated), int(self.violated.sum())
        if not count:
            return "Attack(0 of 0 violated)"
        return (
            f"Attack({found} of {count} violated, margins in "
            f"[{self.margin.min():.4g}, {self.margin.max():.4g}])"
        )

    __repr__ = __str__


def attack(
    model: Model,
    target: Region | Property,
    labels: Labels | None = None,
    *,
    steps: int = 50,
    restarts: int | None = None,
    seed: int = 0,
    timeout: float | None = None,
) -> Attack:
    """Search a region for inputs whose outputs are violations.

    model: a module, callable or net of one input. target: a region, with the labels (samples,) of
    its samples: a violation is another class whose output is at least that of the label; or a
    property. steps: of each descent. restarts: descents for each sample; if left out, 10 for
    samples with labels, and for a property as many as 8 seconds allow. timeout: seconds after which
    no step is begun.

    A sample is left alone once it has a violation. What is reported was computed by the model
    itself, at members of the region as it was given.
    """
    if steps < 0 or (restarts is not None and restarts < 1):
        raise ArgumentError(f"attack needs steps >= 0 and restarts >= 1, not {steps}, {restarts}")
    generator = torch.Generator().manual_seed(seed)
    if isinstance(target, Property):
        if labels is not None:
            raise ArgumentError("a property says itself what is a violation: leave out the labels")
        if restarts is None and timeout is None:
            timeout = PROPERTY_SECONDS
        budget = _budget(steps, restarts or sys.maxsize, timeout)
        return _on_property(model, target, budget, generator)
    if not isinstance(target, Region):
        raise ArgumentError(f"attack takes a region or a property, not {type(target).__name__}")
    budget = _budget(steps, restarts or RESTARTS, timeout)
    return _on_labels(model, target, labels, budget, generator)


def _budget(steps: int, restarts: int, timeout: float | None) -> Budget:
    if timeout is None:
        return Budget(steps, restarts)
    if not timeout >= 0:
        raise ArgumentError(f"timeout must be a number of seconds, not {timeout}")
    return Budget(steps, restarts, time.monotonic() + timeout)


def _on_labels(
    model: Model, region: Region, labels: Any, budget: Budget, generator: torch.Generator
) -> Attack:
    target = Target(model, region.centre)
    with torch.no_grad():
        samples, classes = target(region.centre).shape
    goal = OtherClass(read_labels(labels, samples, classes, target.device), classes)
    search = Search(target, region, goal, budget, generator)
    while not search.is_over:
        search.round()
    return _replayed(target, search.best, goal)


def _on_property(
    model: Model, prop: Property, budget: Budget, generator: torch.Generator
) -> Attack:
    """The cases of the property in turn."""
    if not prop.regions:
        nothing = torch.zeros(0)
        return Attack(nothing, nothing, nothing.bool(), nothing)
    centre = prop.regions[0].centre
    target = Target(model, centre, alone=not has_one_sample(centre))
    with torch.no_grad():
        outputs = target(_of_one_sample(prop.regions[0]).centre).shape[1]
    cases = [case for case in prop.cases(outputs) if case.clauses]
    order = torch.randperm(len(cases), generator=generator).tolist()
    regions = ((cases[place], _of_one_sample(cases[place].region)) for place in order)
    searches = (
        Search(target, region, _unsafe(case, target.device), budget, generator)
        for case, region in regions
    )
    best = _nearest(searches)
    found = _replayed(target, best.best, best.goal)
    return replace(found, violated=prop.violated(found.inputs, found.outputs))


def has_one_sample(centre: Tensor) -> bool:
    """Whether dimension 0 is that of one sample; otherwise the value has no samples."""
    return centre.dim() > 0 and len(centre) == 1


def _of_one_sample(region: Region) -> Region:
    """The region with a dimension for samples in front, if it has none."""
    centre = region.centre
    if has_one_sample(centre):
        return region
    return with_tensors(region, lambda one: one[None] if one.shape == centre.shape else one)


def _unsafe(case: Case, device: torch.device) -> UnsafeSet:
    return UnsafeSet(case.clauses, case.region.centre.numel(), device)


def _nearest(searches: Iterable[Search]) -> Search:
    """Search until one has found a violation; the one that came closest. What is not begun when
    the time is over is left out."""
    begun: list[Search] = []
    for search in searches:
        begun.append(search)
        search.round()
        if bool(search.violated.all()):
            return search
        if search.budget.is_over:
            break
    while not all(search.is_over for search in begun):
        for search in begun:
            search.round()
            if bool(search.violated.all()):
                return search
    return min(begun, key=lambda search: float(search.margin.min()))


@torch.no_grad()
def _replayed(target: Target, x: Tensor, goal: Goal) -> Attack:
    """The model's own outputs at points, one a sample, and what they are."""
    outputs = target(x)
    excess = goal.excess(x, outputs, torch.arange(len(x), device=outputs.device))
    return Attack(x, outputs, goal.violated(excess), goal.margins(excess).amin(1))
