"""One question, answered by the stages of a method: each bounds every node that the outputs depend
on, and later ones begin with what earlier ones have found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

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
    values: Mapping[str, object]
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
    methods = query.method.stages()
    cheaper = methods[:-1] if query.method.optimize else methods
    beside = [
        stage
        for regions, plan in _wider(query)
        for stage in _stages(replace(query, regions=regions, plan=plan), cheaper, required=False)
    ]
    return Answer(query, [*beside, *_stages(query, methods)])


def _stages(query: Query, methods: tuple[Method, ...], required: bool = True) -> list[Stage]:
    """The stages of some methods, one after the other. A stage that leaves the domain of an
    operator is left out, for looser intervals or a larger region may do so; not the last one if it
    is required."""
    found: list[Stage] = []
    before: Stage | None = None
    for method in methods:
        last = method is methods[-1]
        if _adds_nothing(query, method, last, found):
            continue
        try:
            before = bound_nodes(query, method, before)
            found.append(before)
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
        larger = {name: sets[k] for name, sets in wider.items() if k < len(sets)}
        regions = {**query.regions, **larger}
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
        clean=query.clean,
        known=query.state.intervals,
        splits=query.state.splits,
    )
    forward_bounds = ForwardBounds(analysis) if method.is_forward else None
    # interval arithmetic finds the same intervals again: only refined ones are worth reading
    refined = None
    if before is not None and before.method.intermediate != "interval":
        refined = before
    choices = None
    if not analysis.guard.proves:  # values of versions are rounded as well
        choices = ExactPerPosition.of(analysis)
    tightening = Tightening(query, method, choices, forward_bounds, refined)
    return Stage(method, analysis.fill(tightening), forward_bounds)


@dataclass(frozen=True, eq=False)
class Tightening:
    """How a method bounds a node, given its interval by interval arithmetic.

    choices: knows what reads one position of a sentence at a time, if a region has any.
    forward_bounds: linear bounds of all nodes so far, in forward mode. refined: an earlier stage
    that knows more of every node than interval arithmetic says.
    """

    query: Query
    method: Method
    choices: ExactPerPosition | None
    forward_bounds: ForwardBounds | None
    refined: Stage | None

    def __call__(self, analysis: Analysis, node: Node, interval: Interval) -> Interval:
        analysis.values[node.name] = interval
        if self.forward_bounds is not None:
            self.forward_bounds.add(node, interval)
        found = self._exact(node, interval)
        if found is None and _is_read(analysis, node, interval):
            found = self._tighter(analysis, node, interval)
        if found is None:
            return interval
        if node.name in analysis.plan.before_jumps:
            found = found.loosened(interval)
        return interval.intersect(found)

    def _exact(self, node: Node, interval: Interval) -> Interval | None:
        if self.choices is None:
            return None
        return self.choices.bound(node, interval)

    def _tighter(self, analysis: Analysis, node: Node, interval: Interval) -> Interval | None:
        """The bounds of a node that a relaxation reads; None if interval arithmetic will do."""
        if node.name in analysis.plan.exact:
            return None
        mode = self.method.mode_of(node)
        if self.forward_bounds is not None:
            return self.forward_bounds.interval(node)
        if mode == "backward":
            return self._backward(analysis, node.name, interval)
        if affordable(analysis, node):
            return refine.bound_node(analysis, node.name)
        return None

    def _backward(self, analysis: Analysis, name: str, interval: Interval) -> Interval:
        unstable = None if self.query.bound_all else partial(analysis.unstable, name)
        if self.refined is not None:
            interval = interval.intersect(self.refined.analysis.interval(name))
            analysis.values[name] = interval
        found = interval
        if self.refined is None or self.refined.forward_bounds is not None:
            found = refine.bound_node(analysis, name, unstable=unstable)
            analysis.note_contradiction(name, interval, found)
        if not self.method.optimize or name in analysis.plan.affine_only:
            return found
        analysis.values[name] = found
        return optimize_node(analysis, name, self.query.alpha, unstable)


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
