"""The working memory of one question: what is known of every node so far.

An :class:`Analysis` lives for one call. It is filled in topological order; nothing of it is kept on
the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from boundlab.arithmetic.guard import Guard, guard_of
from boundlab.coefficients.coefficients import Coefficients
from boundlab.errors import ArgumentError, BoundlabError, UnsupportedOperator
from boundlab.graph.graph import Graph, Node, Ref
from boundlab.kernels.trained_linear import gathered, is_trained
from boundlab.methods.plan import Plan
from boundlab.methods.splits import Split
from boundlab.regions import Region
from boundlab.relaxations.interval import Interval, Value, lower_of
from boundlab.relaxations.relaxation import Relaxation, checked
from boundlab.rules.cases import with_cases
from boundlab.rules.casts import refuse_wrapping
from boundlab.rules.registry import CUTS, Call, aten, clean
from boundlab.specs.rows import Elements

Refine = Callable[["Analysis", Node, Interval], Interval]
"""Makes the interval of a node smaller, given what is known of the nodes before it."""


@dataclass(eq=False)
class Analysis:
    """plan; values of the independent nodes; regions of the perturbed ones; samples in the batch;
    ReLU slopes; memory budget in bytes; values for the clean input of the nodes that train-mode
    statistics are taken from, if they are known."""

    plan: Plan
    values: dict[str, Any]
    regions: Mapping[str, Region]
    samples: int
    slopes: str
    memory: int
    clean: Mapping[str, Tensor] | None = None
    known: Mapping[str, Interval] = field(default_factory=dict)
    """Intervals that are known beforehand."""
    splits: Mapping[str, Split] = field(default_factory=dict)
    """Constraints under which bounds hold."""
    empty: Tensor | None = None
    """(samples,): where the constraints contradict what is known, so that nothing meets them."""
    calls: dict[str, Call] = field(default_factory=dict)
    kept: int = 0
    """How many bytes of coefficients autograd keeps for the backward pass."""
    _relaxations: dict[str, Relaxation] = field(default_factory=dict)
    finite: dict[Call, tuple[bool | None, ...]] = field(default_factory=dict)
    """Whether the constants of relaxations with free numbers are finite: that depends on intervals,
    not on the numbers."""
    _open: dict[str, tuple[Call, bool]] = field(default_factory=dict)

    @cached_property
    def guard(self) -> Guard:
        """What is done about rounding."""
        return guard_of(self.plan.arithmetic, len(self.plan.whole.nodes), self.samples)

    @property
    def graph(self) -> Graph:
        return self.plan.graph

    def unstable(self, name: str, x: Interval) -> Tensor:
        """The elements of a node in an interval for which tighter bounds can change a relaxation,
        as a mask."""

        def known(source: str) -> object:
            if source == name:
                return x
            return self.values.get(source)

        mask = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        for reader in self.plan.readers[name]:
            call = self.plan.calls[reader]
            if len(set(call.names)) == 1:
                mask |= self.plan.rules[reader].unstable(call.with_values(known))
            else:
                mask |= x.lower < x.upper
        return mask

    def is_open(self, name: str) -> bool:
        """Whether there are elements of a node's argument for which its relaxation is not
        settled."""
        call, rule = self.calls[name], self.plan.rules[name]
        if len(call.inputs) != 1:
            return True
        if name not in self._open or self._open[name][0] is not call:
            self._open[name] = call, bool(rule.unstable(call).any())
        return self._open[name][1]

    def interval(self, name: str) -> Interval:
        value = self.values[name]
        assert isinstance(value, Interval)
        return value

    def elements(self, name: str) -> Elements:
        """The elements of a node, sample by sample."""
        return self._elements_of(self.graph.nodes[name], self.values[name])

    def _elements_of(self, node: Node, value: Value) -> Elements:
        return Elements(node.layout, lower_of(value), self.samples)

    def ends_tail(self, name: str) -> bool:
        """Whether the affine operators at the end of an output begin behind this node."""
        return name in self.plan.tail_cut or not self.interval(name).dtype.is_floating_point

    def least(self, name: str, rows: Coefficients) -> Tensor:
        """The least values of rows of a node over what is known of it, its region or its interval:
        (rows, samples)."""
        if name not in self.regions:
            interval = self.interval(name)
            return self.guard.least(rows.least(interval), rows, interval)
        region = self.regions[name]
        return self.guard.least(region.least(rows), rows, region)

    def relaxation(self, name: str) -> Relaxation:
        """The linear relaxation of a node for the intervals known of its arguments."""
        if name not in self._relaxations:
            call = self.calls[name]
            with _refused_for_whole_numbers(call):
                self._relaxations[name] = checked(self.plan.rules[name].relax(call), call.node)
        return self._relaxations[name]

    def restrict(self, name: str, interval: Interval) -> Interval:
        """The interval of a node, with what is known beforehand and what its split allows."""
        if name in self.known and name not in self.regions:  # of those the region knows more
            if self.known[name].shape != interval.shape:
                raise ArgumentError(
                    f"what is known of node {name} must have the shape {tuple(interval.shape)}, "
                    f"not {tuple(self.known[name].shape)}"
                )
            interval = interval.intersect(self.known[name])
        split = self.splits.get(name)
        if split is None:
            return interval
        self.note_contradiction(name, interval, split.cut(interval))
        return interval.intersect(split.cut(interval))

    def note_contradiction(self, name: str, a: Interval, b: Interval) -> None:
        """Note the samples in which two intervals of a node that is split do not meet, by more than
        rounding: nothing satisfies the constraints there."""
        if not self.splits or not a.lower.numel():
            return
        part = Interval(torch.maximum(a.lower, b.lower), torch.minimum(a.upper, b.upper))
        elements = Elements(self.graph.nodes[name].layout, part.lower, self.samples)
        size = elements.split(part.lower.abs() + part.upper.abs())  # (samples, elements)
        # Elements may cancel: what is rounded off is relative to the largest one of the sample.
        size = torch.where(torch.isfinite(size), size, 0).amax(1, keepdim=True)
        room = 64 * torch.finfo(part.dtype).eps * size
        crossed = elements.split(part.lower) > elements.split(part.upper) + room
        found = crossed.any(1).expand(self.samples)
        if self.empty is not None:
            found = found | self.empty
        self.empty = found

    def fill(self, refine: Refine) -> Analysis:
        """Bound every node that the targets depend on, in topological order."""
        self._gather_gradients()
        statistics = self._clean_values()
        for node in self.graph.nodes.values():
            name = node.name
            if name not in self.plan.needed:
                continue
            if name in self.regions:
                hull = self.guard.hull(self.regions[name])
                self.values[name] = refine(self, node, self.restrict(name, hull))
            elif name in self.plan.rules:
                self._fill_perturbed(node, refine)
            elif node.op is clean:
                self.values[name] = statistics[node.inputs[0]]
            elif name not in self.values:
                self.values[name] = self.guard.constant(node, self._argument_of(node))
        return self

    def _fill_perturbed(self, node: Node, refine: Refine) -> None:
        """Bound a node whose arguments are bounded."""
        name, rule = node.name, self.plan.rules[node.name]
        call = self.plan.calls[name].with_values(self.values.__getitem__, self.slopes)
        call = self.guard.call(call)
        self.calls[name] = call
        with _refused_for_whole_numbers(call):
            interval = with_cases(rule, call, rule.interval(call))
        self.guard.note(self._elements_of(node, interval), interval)
        if not interval.dtype.is_floating_point:
            refuse_wrapping(rule, call, interval)
        found = refine(self, node, self.restrict(name, interval))
        if found.dtype != interval.dtype and interval.dtype.is_floating_point:
            # regions of a longer type; the node's values are numbers of its own type, and rounding
            # to nearest is monotone and leaves these alone: a bound that is rounded stays one
            ends = (found.lower.to(interval.dtype), found.upper.to(interval.dtype))
            found = Interval(*ends)
        self.values[name] = found
        if rule.uses_result:
            self.calls[name] = replace(call, result=self.interval(name))
            self._relaxations.pop(name, None)  # made while less was known of the result

    def _argument_of(self, node: Node) -> Callable[[str], object]:
        """From the names of a node's arguments to their values; operators that read shapes only get
        a member of an interval."""
        if node.op in CUTS and node.op is not clean:
            return lambda name: lower_of(self.values[name])
        return self.values.__getitem__

    def _gather_gradients(self) -> None:
        """In training, weights of linear layers are read by intervals and by rows: their gradient
        is made once."""
        layers = (node for node in self.graph.nodes.values() if node.op is aten.linear.default)
        weights = (layer.args[1] for layer in layers)
        for name in {weight.name for weight in weights if isinstance(weight, Ref)}:
            if is_trained(self.values.get(name)):
                self.values[name] = gathered(self.values[name])

    def _clean_values(self) -> dict[str, Tensor]:
        """The values, for the centres of the regions, of what train-mode statistics are taken
        from."""
        whole = self.plan.whole
        wanted = tuple(node.inputs[0] for node in whole.nodes.values() if node.op is clean)
        if not wanted:
            return {}
        if self.clean:
            return dict(self.clean)
        needed = whole.ancestors(wanted)
        centres = {name: region.centre for name, region in self.regions.items()}
        found = whole.run({**self.values, **centres}, keep=lambda name: name in needed)
        for name, value in found.items():
            if name not in self.plan.variable:
                self.values[name] = value
        return found


@contextmanager
def _refused_for_whole_numbers(call: Call) -> Iterator[None]:
    """Refuse, by name, what torch does not do to perturbed whole numbers or truth values in the
    place of real ones."""
    try:
        yield
    except BoundlabError:
        raise
    except (RuntimeError, TypeError) as error:
        if all(x.dtype.is_floating_point for x in call.inputs) or "memory" in str(error):
            raise
        raise UnsupportedOperator(
            f"{call.node}: it has no rule for whole numbers or truth values that are perturbed; "
            "convert them first: .to(x.dtype)"
        ) from error
