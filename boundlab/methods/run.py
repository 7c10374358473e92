"""One question, answered by the stages of a method: each bounds every node that the outputs depend
on, and later ones begin with what earlier ones have found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor

from boundlab.errors import DomainError
from boundlab.graph.graph import Node
from boundlab.methods import refine
from boundlab.methods.alpha import Alpha, Optimized, Report, optimize_node
from boundlab.methods.analysis import Analysis
from boundlab.methods.choices import ExactPerPosition
from boundlab.methods.forward import ForwardBounds
from boundlab.methods.method import Method
from boundlab.methods.plan import Plan
from boundlab.methods.state import BoundState
from boundlab.regions import Region
from boundlab.relaxations.interval import Interval

AFFORDABLE = 1 << 26
"""The size of coefficients up to which interval arithmetic asks a region that is not a box for
exact affine bounds."""


@dataclass(frozen=True, eq=False)
class Query:
    """Everything that one call asks."""

    plan: Plan
    values: Mapping[str, Any]
    regions: Mapping[str, Region]
    samples: int
    method: Method
    memory: int
    slopes: str = "adaptive"
    alpha: Alpha = field(default_factory=Alpha)
    state: BoundState = field(default_factory=BoundState)
    """What is known beforehand."""
    clean: Mapping[str, Tensor] | None = None
    """Values for the clean input of the nodes that train-mode statistics are taken from, if they
    are known."""
    bound_all: bool = False
    """Bound every element of the nodes that relaxations read, not only the unstable ones."""
    report: Report | None = None


@dataclass(frozen=True, eq=False)
class Stage:
    """One method, what it knows of every node, and in forward mode their linear bounds."""

    method: Method
    analysis: Analysis
    forward_bounds: ForwardBounds | None = None


@dataclass(eq=False)
class Answer:
    """The stages, all of which are true; the last one is that of the method that was asked for.
    ``optimized``: what optimising has found for an output and a side, by ``"output, side"``."""

    query: Query
    stages: list[Stage]
    optimized: dict[str, Optimized] = field(default_factory=dict)

    @property
    def analysis(self) -> Analysis:
        return self.stages[-1].analysis

    @property
    def method(self) -> Method:
        return self.query.method


def run(query: Query) -> Answer:
    """Bound every node that the targets depend on by the stages of the method."""
    cheaper = query.method.stages()[: -1 if query.method.optimize else None]
    beside = [
        stage
        for regions, plan in _wider(query)
        for stage in _stages(replace(query, regions=regions, plan=plan), cheaper, required=False)
    ]
    return Answer(query, [*beside, *_stages(query, query.method.stages())])


def _stages(query: Query, methods: tuple[Method, ...], required: bool = True) -> list[Stage]:
    """The stages of some methods, one after the other. A stage that leaves the domain of an
    operator is left out, for looser intervals or a larger region may do so; not the last one if it
    is required."""
    found: list[Stage] = []
    for method in methods:
        last = method is methods[-1]
        if _adds_nothing(query, method, last, found):
            continue
        try:
            found.append(bound_nodes(query, method, found[-1] if found else None))
        except DomainError:
            if last and required:
                raise
    return found


def _adds_nothing(query: Query, method: Method, last: bool, before: list[Stage]) -> bool:
    """Whether a stage would repeat another one: slopes without a step to take, or an earlier stage
    where no interval of a nonlinear function of the sources gets tighter."""
    if method.optimize and last:
        steps = query.alpha.iterations or query.alpha.inner_steps or query.state.alphas
        return bool(before) and not (steps and query.samples)
    return not last and not query.plan.refinable and not query.method.optimize


def _wider(query: Query) -> list[tuple[dict[str, Region], Plan]]:
    """Larger sets than the regions whose bounds must not be better, and their plans: those that a
    ball with a box around it is the intersection of."""
    if query.method.output != "backward" or query.method.is_forward:
        return []
    wider = {name: region.wider() for name, region in query.regions.items()}
    found = []
    for k in range(max(map(len, wider.values()))):
        regions = {
            name: wider[name][k] if k < len(wider[name]) else region
            for name, region in query.regions.items()
        }
        found.append((regions, query.plan.for_regions(regions)))
    return found


def bound_nodes(query: Query, method: Method, before: Stage | None = None) -> Stage:
    """Bound every node by one method, beginning with the intervals of an earlier stage."""
    if before is not None and before.method.intermediate == method.intermediate == "interval":
        return Stage(method, before.analysis)  # nodes are bounded in the same way
    analysis = Analysis(
        query.plan,
        dict(query.values),
        query.regions,
        query.samples,
        query.slopes,
        query.memory,
        query.clean,
        query.state.intervals,
        query.state.splits,
    )
    choices = ExactPerPosition.of(analysis)
    forward_bounds = ForwardBounds(analysis) if method.is_forward else None
    # interval arithmetic finds the same intervals again: only refined ones are worth reading
    refined = None if before is None or before.method.intermediate == "interval" else before

    def tighten(analysis: Analysis, node: Node, interval: Interval) -> Interval:
        name = node.name
        analysis.values[name] = interval
        if forward_bounds is not None:
            forward_bounds.add(node, interval)
        jumps = name in analysis.plan.before_jumps
        exact = None if choices is None else choices.bound(node, interval)
        if exact is not None:
            return interval.intersect(exact.loosened(interval) if jumps else exact)
        if not _is_read(analysis, node, interval) or name in analysis.plan.exact:
            return interval
        mode = method.mode_of(node)
        unstable = None if query.bound_all else partial(analysis.unstable, name)
        if forward_bounds is not None:
            found = forward_bounds.interval(node)
        elif mode == "backward":
            if refined is not None:
                found = interval.intersect(refined.analysis.interval(name))
                analysis.values[name] = found
            else:
                found = refine.bound_node(analysis, name, unstable=unstable)
                analysis.note_contradiction(name, interval, found)
            if method.optimize and name not in analysis.plan.affine_only:
                analysis.values[name] = found
                found = optimize_node(analysis, name, query.alpha, unstable)
        elif affordable(analysis, node):
            found = refine.bound_node(analysis, name)
        else:
            return interval
        return interval.intersect(found.loosened(interval) if jumps else found)

    return Stage(method, analysis.fill(tighten), forward_bounds)


def _is_read(analysis: Analysis, node: Node, interval: Interval) -> bool:
    """Whether the relaxation of another node depends on the interval of this one."""
    if node.name not in analysis.plan.readers or node.name in analysis.regions:
        return False
    return interval.dtype.is_floating_point


def affordable(analysis: Analysis, node: Node) -> bool:
    """Whether interval arithmetic should ask the region itself: the node is an affine function of
    sources that are not boxes (an L2 ball), whose hull would lose the norm, and the coefficients
    are affordable."""
    if node.name not in analysis.plan.affine_only:
        return False
    sources = [name for name in analysis.plan.behind(node.name) if name in analysis.regions]
    if all(analysis.regions[name].is_box for name in sources):
        return False
    columns = sum(analysis.interval(name).shape.numel() for name in sources)
    size = analysis.interval(node.name).shape.numel() * columns
    return size <= AFFORDABLE * max(analysis.samples, 1)
