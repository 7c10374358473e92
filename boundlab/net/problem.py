"""A prepared question: read, checked and folded once, asked thousands of times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import Arithmetic
from boundlab.arithmetic.double import regions_in_double, values_in_double
from boundlab.compat.ambient import undisturbed
from boundlab.errors import ArgumentError
from boundlab.methods.alpha import Alpha
from boundlab.methods.method import Method
from boundlab.methods.outputs import output_bounds, spec_bounds
from boundlab.methods.run import Answer, run
from boundlab.methods.state import BoundState
from boundlab.net.gradients import kept
from boundlab.net.questions import Options
from boundlab.regions import Region
from boundlab.regions.base import with_tensors
from boundlab.results import Bounds

if TYPE_CHECKING:
    from boundlab.net.net import Net


@dataclass(eq=False)
class Problem:
    """Bounds of the output, or of ``spec @ output``, over regions, for a model with one output; or
    of a node inside (``target``), by its name in the graph.

    Made by ``net.problem(region, spec=...)``. The samples of a state are subdomains of those of the
    problem (``state.origin``): any number of them, in any order.
    """

    net: Net
    values: Mapping[str, Any]
    regions: Mapping[str, Region]
    begun: BoundState
    spec: Tensor | None = None
    memory: int | str | None = None
    target: str | None = None
    arithmetic: Arithmetic | None = None
    _constants: dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(
        net: Net,
        values: Mapping[str, Any],
        regions: Mapping[str, Region],
        spec: Tensor | None,
        memory: int | str | None,
        arithmetic: Arithmetic | None = None,
    ) -> Problem:
        """The problem for inputs and regions as they are now: they are copied."""
        if spec is not None and not isinstance(spec, Tensor):
            raise ArgumentError(f"spec must be a tensor, not {type(spec).__name__}")
        begun = net.questions.begin(BoundState(), values, regions, arithmetic)
        assert begun.basis is not None
        copied = dict(begun.basis.regions)
        values = {**values, **begun.basis.others}
        if arithmetic is not None:
            values, copied = values_in_double(values, arithmetic), regions_in_double(copied)
        return Problem(net, values, copied, begun, spec, memory, arithmetic=arithmetic)

    def bounds(
        self,
        state: BoundState | None = None,
        method: str | Method = "crown",
        sides: str = "both",
        alpha: Alpha | None = None,
        slopes: str = "adaptive",
    ) -> Bounds:
        """Bounds (domains, ...) of the subdomains of a state, and the state that they leave; of the
        whole problem without one."""
        if sides not in ("both", "lower", "upper"):
            raise ArgumentError(f"sides must be 'both', 'lower' or 'upper', not {sides!r}")
        given = self._checked(state)
        proved = self.arithmetic
        options = Options(method, None, slopes, alpha, self.memory, arithmetic=proved)
        target = self.target or self.net.only_output("a problem")
        with kept(None, self.net.captured, self.regions, self.spec):
            answer = self._run(given, options)
            if self.spec is None:
                found = output_bounds(answer, target, sides)
            else:
                spec = self._spec_of(given)
                found = self.net.drop_samples(spec_bounds(answer, target, spec, sides))
        return Bounds(found.lower, found.upper, state=self.net.questions.state_of(answer))

    @property
    def plain(self) -> Problem:
        """The same question with rounding taken for nothing, for what need not hold."""
        return replace(self, arithmetic=None, _constants={})

    def to(self, dtype: torch.dtype) -> Problem:
        """The same question in another precision, for what need not hold, such as slopes; its
        states are those of this problem, in that precision."""
        cast = lambda value: value.to(dtype) if _is_floating(value) else value
        values = {name: cast(value) for name, value in self.values.items()}
        regions = {name: with_tensors(region, cast) for name, region in self.regions.items()}
        spec = cast(self.spec)
        return replace(self.plain, values=values, regions=regions, spec=spec)

    @property
    def constants(self) -> dict[str, Any]:
        """The values of nodes that depend on no input, as far as questions have found them."""
        graph = self.net.graph
        changing = graph.dependents({*graph.inputs, *self.regions}, frozenset())
        known = {**self.values, **self._constants}
        return {name: value for name, value in known.items() if name not in changing}

    def _checked(self, state: BoundState | None) -> BoundState:
        """A state of this problem: a given one, or one that knows nothing yet."""
        basis = self.begun.basis
        assert basis is not None
        basis.check_parameters(self.net.questions.basis_now(self.regions))
        if state is None or (state.basis is None and not state.splits and not state.intervals):
            return self.begun
        if state.basis is not basis:
            raise ArgumentError(
                "the state belongs to another problem: take it from a result of this"
            )
        return state

    @undisturbed()
    def _run(self, given: BoundState, options: Options) -> Answer:
        values, regions = self._of_domains(given)
        query = self.net.questions.query(values, regions, options, given, target=self.target)
        answer = run(query)
        self._remember(answer)
        return answer

    def _of_domains(self, state: BoundState) -> tuple[dict[str, Any], dict[str, Region]]:
        """Values and regions with one sample for each subdomain."""
        values = {**self.values, **self._constants}
        if state.origin is None or state is self.begun:
            return values, dict(self.regions)
        nodes, origin = self.net.graph.nodes, state.origin
        take: Callable[[Tensor], Tensor] = lambda value: value[origin.to(value.device)]
        batched = [name for name in self.net.graph.inputs if nodes[name].layout.batched]
        values |= {name: take(values[name]) for name in batched if name in values}
        regions = dict(self.regions)
        for name in batched:
            if name in regions:
                regions[name] = self._domains_of(name, origin)
        return values, regions

    def _domains_of(self, name: str, origin: Tensor) -> Region:
        region = self.regions[name]
        found = region.samples(origin.to(region.centre.device))
        if found is None:
            raise ArgumentError(
                f"{type(region).__name__} does not say how to take some of its samples: give it a "
                "method samples(chosen)"
            )
        return found

    def _spec_of(self, state: BoundState) -> Tensor:
        assert self.spec is not None
        if self.spec.dim() == 2 or state.origin is None:
            return self.spec
        return self.spec[state.origin.to(self.spec.device)]

    def _remember(self, answer: Answer) -> None:
        """Keep the values that depend on no input: folded weights, constants."""
        if self._constants or torch.is_grad_enabled() or self.arithmetic is not None:
            return
        graph, values = answer.analysis.graph, answer.analysis.values
        changing = graph.dependents({*graph.inputs, *self.regions}, frozenset())
        self._constants = {name: value for name, value in values.items() if name not in changing}


def _is_floating(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
