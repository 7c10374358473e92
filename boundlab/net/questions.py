"""From what a user asks to what the methods answer: plans, queries and states."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import Arithmetic
from boundlab.arithmetic.double import graph_in_double, in_double
from boundlab.errors import ArgumentError, MixedSamples, did_you_mean
from boundlab.graph.graph import Graph
from boundlab.methods.alpha import Alpha
from boundlab.methods.halving import can_be_taken_apart
from boundlab.methods.memory import in_bytes
from boundlab.methods.method import Method, find_method
from boundlab.methods.plan import Plan
from boundlab.methods.run import Answer, Query
from boundlab.methods.state import Basis, BoundState
from boundlab.net.captured import Captured
from boundlab.net.reading import Known, Reader
from boundlab.regions import Region
from boundlab.relaxations.interval import Interval
from boundlab.rules import registry
from boundlab.rules.rectifiers import SLOPES
from boundlab.rules.registry import generation

Slopes = str | Mapping[str, Mapping[str, Tensor]]
"""The lower line of an unstable ReLU, or alphas of an earlier result."""


@dataclass(frozen=True, eq=False)
class Options:
    """How a question is asked, beside the entries of the inputs: the keywords of ``net.bounds``
    that say how nodes are bounded."""

    method: str | Method = "crown"
    perturb: Mapping[str, Region] | None = None
    slopes: Slopes = "adaptive"
    alpha: Alpha | None = None
    memory: int | str | None = None
    known: Known | None = None
    arithmetic: Arithmetic | None = None


@dataclass(frozen=True, eq=False)
class Questions:
    """Prepares the questions about a captured model, and keeps the plans that it makes."""

    captured: Captured
    reader: Reader
    _plans: dict[Hashable, Plan] = field(default_factory=dict)

    def query(
        self,
        values: Mapping[str, Any],
        regions: Mapping[str, Region],
        options: Options,
        state: BoundState | None = None,
        bound_all: bool = False,
        target: str | None = None,
    ) -> Query:
        """What the methods are asked, from values and regions that are read. target: a node that is
        asked for instead of the outputs."""
        method = find_method(options.method)
        given, line = state or BoundState(), "adaptive"
        if isinstance(options.slopes, str):
            choose("slopes", options.slopes, SLOPES)
            line = options.slopes
        elif method.optimize:
            given = replace(given, alphas=options.slopes)
        _check_alpha(method, options)
        known = self.reader.known(options.known or {})
        if options.arithmetic is not None:
            known = {name: _in_double(interval) for name, interval in known.items()}
        plan = self.plan(regions, False, tuple(known), target, options.arithmetic)
        self._check_mixing(plan)
        if bound_all:
            plan = self.plan(regions, True, arithmetic=options.arithmetic)
        return Query(
            plan,
            values,
            regions,
            self.reader.samples(values, regions),
            method,
            in_bytes(options.memory, next(iter(regions.values())).centre.device),
            line,
            options.alpha or Alpha(),
            given.with_known(known),
            bound_all=bound_all,
        )

    def plan(
        self,
        regions: Mapping[str, Region],
        bound_all: bool = False,
        kept: tuple[str, ...] = (),
        target: str | None = None,
        arithmetic: Arithmetic | None = None,
    ) -> Plan:
        """Found once for each set of perturbed nodes, and again when rules were registered since.
        kept: nodes that may not be folded. target: a node that is asked for instead of the
        outputs. arithmetic: that bounds are proved for."""
        boxes = frozenset(name for name, region in regions.items() if region.is_box)
        balls = frozenset(name for name, region in regions.items() if region.reach_is_exact)
        names = tuple(regions)
        key = names, boxes, balls, bound_all, kept, target, arithmetic, generation()
        if key not in self._plans:
            graph, targets = self.captured.graph, self.captured.targets
            if target is not None:
                targets = (target,)
            if arithmetic is not None:
                graph = self._in_double(graph, arithmetic)
            self._plans[key] = Plan(
                graph, names, boxes, balls, targets, bound_all, kept, arithmetic
            )
        return self._plans[key]

    def _in_double(self, graph: Graph, arithmetic: Arithmetic) -> Graph:
        if self.has_statistics:
            raise ArgumentError(
                "arithmetic=... needs a model in eval mode: statistics of a batch are rounded too"
            )
        return graph_in_double(graph, arithmetic)

    def _check_mixing(self, plan: Plan) -> None:
        """Refuse graphs in which samples may meet; operators without a rule are named first."""
        unknown = self.captured.graph.unknown
        doubts = [reason for name, reason in unknown.items() if name in plan.needed]
        if doubts and plan.rules is not None:
            raise MixedSamples(doubts[0])

    # -- states ------------------------------------------------------------------------------------

    @property
    def has_statistics(self) -> bool:
        """Whether the graph takes statistics of the batch: it was captured in train mode."""
        return any(node.op is registry.clean for node in self.captured.graph.nodes.values())

    def begin(
        self,
        state: BoundState,
        values: Mapping[str, Any],
        regions: Mapping[str, Region],
        arithmetic: Arithmetic | None = None,
    ) -> BoundState:
        """A state as one of this question: its intervals hold for it, and it can be cut."""
        if self.has_statistics:
            raise ArgumentError(
                "states need a model in eval mode: statistics change with the batch"
            )
        samples = self.reader.samples(values, regions)
        basis = self._basis(values, regions, arithmetic)
        if state.basis is not None:
            state.basis.check(basis, state.origin)
        return replace(state, samples=samples, origin=torch.arange(samples), basis=basis)

    def basis_now(self, perturbed: Collection[str]) -> Basis:
        """The parameters that intervals depend on, as the module has them now; those that are
        perturbed belong to the regions."""
        values = self.reader.parameters()
        return self._basis({name: values[name] for name in values if name not in perturbed}, {})

    def _basis(
        self,
        values: Mapping[str, Any],
        regions: Mapping[str, Region],
        arithmetic: Arithmetic | None = None,
    ) -> Basis:
        """What intervals of a state depend on."""
        graph = self.captured.graph
        tensors = [values.get(name) for name in (*graph.parameters, *graph.constants)]
        held = [tensor for tensor in tensors if isinstance(tensor, Tensor)]
        others = {name: values[name] for name in graph.inputs if name in values}
        separable = can_be_taken_apart(graph)
        return Basis.of(graph, regions, others, held, separable, arithmetic)

    def state_of(self, answer: Answer) -> BoundState:
        """What an answer has found, for a later question."""
        given, analysis = answer.query.state, answer.analysis
        intervals = {
            name: Interval(value.lower.detach(), value.upper.detach())
            for name, value in analysis.values.items()
            if isinstance(value, Interval) and value.dtype.is_floating_point
        }
        paths = self.captured.module_names()
        found = answer.optimized
        return BoundState(
            intervals,
            {**given.alphas, **{key: part.alphas for key, part in found.items()}},
            given.splits,
            {**given.betas, **{key: part.betas for key, part in found.items()}},
            analysis.samples,
            {name: analysis.graph.nodes[name].layout for name in intervals},
            {path: name for path, name in paths.items() if name in intervals},
            given.origin,
            _empty(answer),
            given.basis,
        )


def _in_double(x: Interval) -> Interval:
    return Interval(in_double(x.lower), in_double(x.upper))


def _empty(answer: Answer) -> Tensor | None:
    """(samples,): where a stage has found that nothing meets the constraints, or it was known."""
    empty = answer.query.state.empty
    for stage in answer.stages:
        more = stage.analysis.empty
        if more is not None:
            empty = more.cpu() if empty is None else empty | more.cpu()
    return empty


def _check_alpha(method: Method, options: Options) -> None:
    alpha = options.alpha
    if not method.optimize and (alpha is not None or not isinstance(options.slopes, str)):
        raise ArgumentError(
            "alpha=... and slopes of an earlier result belong to "
            f'method="alpha-crown", not to "{method.name}"'
        )
    if alpha is not None and not isinstance(alpha, Alpha):
        raise ArgumentError(
            f"alpha must be a bl.Alpha(iterations=..., lr=...), not {type(alpha).__name__}"
        )


def choose(what: str, value: object, options: tuple[str, ...]) -> None:
    """Refuse a value that is none of the options."""
    if value not in options:
        raise ArgumentError(
            f"{what} must be one of {', '.join(map(repr, options))}, not {value!r}."
            f"{did_you_mean(str(value), options)}"
        )
