"""The working memory of one question: what is known of every node so far.

An :class:`Analysis` lives for one call. It is filled in topological order; nothing of it is kept on the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from boundlab.graph import Graph, Node
from boundlab.interval import Interval, lower_of
from boundlab.regions import Region
from boundlab.relaxation import Relaxation
from boundlab.rules.affine import MONOTONE
from boundlab.rules.registry import CUTS, Call, Rule, aten, clean, find_rule

Refine = Callable[["Analysis", Node, Interval], Interval]
"""Makes the interval of a node smaller, given what is known of the nodes before it."""

UNKNOWN = Interval(torch.empty(0), torch.empty(0))


@dataclass(eq=False)
class Analysis:
    """graph; values of the independent nodes; regions of the perturbed ones; samples in the batch; ReLU slopes."""

    graph: Graph
    values: dict[str, Any]
    regions: Mapping[str, Region]
    samples: int
    slopes: str
    targets: tuple[str, ...]
    calls: dict[str, Call] = field(default_factory=dict)
    _relaxations: dict[str, Relaxation] = field(default_factory=dict)

    @cached_property
    def variable(self) -> set[str]:
        """The nodes whose value the perturbation can change."""
        return self.graph.dependents(set(self.regions), CUTS)

    @cached_property
    def needed(self) -> set[str]:
        return self.graph.ancestors(self.targets)

    @cached_property
    def rules(self) -> dict[str, Rule]:
        names = [name for name in self.graph.nodes if name in self.variable and name in self.needed and name not in self.regions]
        return {name: find_rule(self.graph.nodes[name]) for name in names}

    @cached_property
    def affine_only(self) -> set[str]:
        """The nodes that are affine functions of the sources."""
        found = set(self.regions)
        for name, rule in self.rules.items():
            node = self.graph.nodes[name]
            call = Call.of(node, lambda n: UNKNOWN if n in self.variable else None)
            if not rule.nonlinear(call) and all(n in found for n in call.names):
                found.add(name)
        return found

    @cached_property
    def exact(self) -> set[str]:
        """The nodes whose interval arithmetic is exact: one affine step from elements that move independently."""
        independent = {name for name, region in self.regions.items() if region.is_box}
        exact = set(independent)
        for name in self.graph.nodes:
            if name not in self.affine_only or name in self.regions:
                continue
            node = self.graph.nodes[name]
            call = Call.of(node, lambda n: UNKNOWN if n in self.variable else None)
            if len(call.names) != 1:
                continue
            (source,) = call.names
            if getattr(node.op, "overloadpacket", None) in ONE_TO_ONE:
                exact |= {name} if source in exact else set()
                independent |= {name} if source in independent else set()
            elif source in independent:
                exact.add(name)
        return exact

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """node -> the perturbed nodes whose relaxation depends on its interval."""
        found: dict[str, list[str]] = {}
        for name, rule in self.rules.items():
            call = Call.of(self.graph.nodes[name], lambda n: UNKNOWN if n in self.variable else None)
            if rule.nonlinear(call):
                for source in set(call.names):
                    found.setdefault(source, []).append(name)
        return found

    def undecided(self, name: str, x: Interval) -> Tensor:
        """The elements of a node in an interval for which tighter bounds can change a relaxation, as a mask."""
        mask = torch.zeros(x.shape, dtype=torch.bool, device=x.lower.device)
        for reader in self.readers[name]:
            node = self.graph.nodes[reader]
            alone = sum(source in self.variable for source in node.inputs) == 1
            ask = getattr(self.rules[reader], "undecided", None)
            mask |= ask(Call.of(node, lambda n: x if n == name else self.values.get(n))) if alone and ask is not None else x.lower < x.upper
        return mask

    def interval(self, name: str) -> Interval:
        value = self.values[name]
        assert isinstance(value, Interval)
        return value

    def relaxation(self, name: str) -> Relaxation:
        """The linear relaxation of a node for the intervals known of its arguments."""
        if name not in self._relaxations:
            self._relaxations[name] = self.rules[name].relax(self.calls[name])
        return self._relaxations[name]

    def fill(self, refine: Refine) -> Analysis:
        """Bound every node that the targets depend on, in topological order."""
        shapes = {op for op in CUTS if op is not clean}
        statistics = self._clean_values()
        for node in self.graph.nodes.values():
            name = node.name
            if name not in self.needed:
                continue
            if name in self.regions:
                self.values[name] = refine(self, node, self.regions[name].hull())
            elif name in self.rules:
                call = Call.of(node, self.values.__getitem__, self.slopes)
                self.calls[name] = call
                interval = self.rules[name].interval(call)
                self.values[name] = refine(self, node, interval)
                if getattr(self.rules[name], "uses_result", False):
                    self.calls[name] = replace(call, result=self.interval(name))
                    self._relaxations.pop(name, None)  # made while less was known of the result
            elif node.op is clean:
                self.values[name] = statistics[node.inputs[0]]
            elif name not in self.values:
                lookup = self.values.__getitem__
                if node.op in shapes:
                    lookup = lambda n: lower_of(self.values[n])
                self.values[name] = node.call(*node.arguments(lookup))
        return self

    def _clean_values(self) -> dict[str, Any]:
        """The values, for the centres of the regions, of what train-mode statistics are taken from."""
        wanted = tuple(node.inputs[0] for node in self.graph.nodes.values() if node.op is clean)
        if not wanted:
            return {}
        needed = self.graph.ancestors(wanted)
        centres = {name: region.centre for name, region in self.regions.items()}
        return self.graph.run({**self.values, **centres}, keep=lambda name: name in needed)


ONE_TO_ONE = frozenset(
    (
        aten.reshape, aten.flatten, aten.unflatten, aten.permute, aten.transpose, aten.t, aten.squeeze, aten.unsqueeze,
        aten.slice, aten.select, aten.narrow, aten.split, aten.split_with_sizes, aten.chunk, aten.unbind, aten.neg, aten.flip, aten.roll,
    )
)  # fmt: skip
"""Operators that only move or negate elements."""

assert all(op in MONOTONE or op is aten.neg for op in ONE_TO_ONE)
