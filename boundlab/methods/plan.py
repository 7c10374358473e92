"""What of a question depends only on the graph, on what is perturbed and on what is asked for:
found once, used often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from boundlab.arithmetic.arithmetic import Arithmetic
from boundlab.arithmetic.rounded import RoundedRule
from boundlab.graph.graph import Graph, Node
from boundlab.methods.folding import fold
from boundlab.regions import Region
from boundlab.relaxations.interval import Interval
from boundlab.rules.registry import CUTS, Call, Rule, clean, find_rule

UNKNOWN = Interval(torch.empty(0), torch.empty(0))


@dataclass(frozen=True, eq=False)
class Plan:
    """whole: the graph; sources: the perturbed nodes; boxes: those of them whose elements move
    independently; balls: those whose reach through one product is known exactly; targets: the
    outputs; bound_all: whether all nodes are asked for, so that none may be folded into another;
    kept: nodes that may not be folded in any case; arithmetic: that bounds are proved for, in which
    a folded layer would round in another way."""

    whole: Graph
    sources: tuple[str, ...]
    boxes: frozenset[str]
    balls: frozenset[str]
    targets: tuple[str, ...]
    bound_all: bool = False
    kept: tuple[str, ...] = ()
    arithmetic: Arithmetic | None = None
    _behind: dict[str, set[str]] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        """The graph to work on."""
        if self.bound_all or self.arithmetic is not None:
            return self.whole
        variable = self.whole.dependents(set(self.sources), CUTS)
        return fold(self.whole, variable, (*self.targets, *self.kept))

    @cached_property
    def variable(self) -> set[str]:
        """The nodes whose value the perturbation can change."""
        return self.graph.dependents(set(self.sources), CUTS)

    @cached_property
    def needed(self) -> set[str]:
        """What the targets depend on; not what only the clean values behind train-mode statistics
        do."""
        return self.graph.ancestors(self.targets, ends=frozenset((clean,)))

    def behind(self, target: str) -> set[str]:
        """A perturbed node and the perturbed nodes that it depends on."""
        if target not in self._behind:
            self._behind[target] = self.graph.ancestors((target,), ends=CUTS) & self.variable
        return self._behind[target]

    @cached_property
    def rules(self) -> dict[str, Rule]:
        names = [
            name
            for name in self.graph.nodes
            if name in self.variable and name in self.needed and name not in self.sources
        ]
        return {name: self._rule(self.graph.nodes[name]) for name in names}

    def _rule(self, node: Node) -> Rule:
        if self.arithmetic is None:
            return find_rule(node)
        return RoundedRule.of(node, find_rule(node), self.arithmetic, len(self.whole.nodes))

    @cached_property
    def calls(self) -> dict[str, Call]:
        """Each call of a rule, with UNKNOWN in the place of every perturbed argument."""
        unknown = dict.fromkeys(self.variable, UNKNOWN)
        return {name: Call.of(self.graph.nodes[name], unknown.get) for name in self.rules}

    @cached_property
    def nonlinear(self) -> set[str]:
        """The nodes whose relaxation depends on the intervals of their arguments."""
        return {name for name, rule in self.rules.items() if rule.nonlinear(self.calls[name])}

    @cached_property
    def affine_only(self) -> set[str]:
        """The nodes that are affine functions of the sources."""
        found = set(self.sources)
        for name, call in self.calls.items():
            if name not in self.nonlinear and all(source in found for source in call.names):
                found.add(name)
        return found

    @cached_property
    def exact(self) -> set[str]:
        """The nodes whose interval arithmetic is exact: one affine step from elements that move
        independently."""
        independent = set(self.boxes)
        exact = set(independent)
        for name, call in self.calls.items():
            if name not in self.affine_only or len(call.names) != 1:
                continue
            (source,) = call.names
            if moves_only(call):
                for kind in (exact, independent):
                    if source in kind:
                        kind.add(name)
            elif source in independent or self._is_exact_in_ball(name, source):
                exact.add(name)
        return exact

    def _is_exact_in_ball(self, name: str, source: str) -> bool:
        return source in self.balls and self.rules[name].exact_in_balls

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """node -> the perturbed nodes whose relaxation depends on its interval."""
        found: dict[str, list[str]] = {}
        for name in self.rules:
            if name in self.nonlinear:
                for source in set(self.calls[name].names):
                    found.setdefault(source, []).append(name)
        return found

    @cached_property
    def tail_cut(self) -> set[str]:
        """The nodes whose intervals say as much of a linear function as those before them: what is
        not affine, and behind it operators that read every element at most once. sum_i |c_i| sum_j
        |a_ij| r_j is sum_j |sum_i c_i a_ij| r_j then."""
        found = set(self.nonlinear)
        for name, call in self.calls.items():
            behind_one = len(call.names) == 1 and call.names[0] in found
            if behind_one and self.rules[name].facts.reads_once_in(call):
                found.add(name)
        return found

    @cached_property
    def refinable(self) -> bool:
        """Whether backward mode can tighten the interval of a nonlinear function of the sources
        that a relaxation reads."""
        known = self.exact | set(self.sources)
        if set(self.sources) <= self.boxes:  # else interval arithmetic asks the regions themselves
            known |= self.affine_only
        return any(name in self.variable and name not in known for name in self.readers)

    def for_regions(self, regions: Mapping[str, Region]) -> Plan:
        """The plan for other regions of the same sources."""
        boxes = frozenset(name for name, region in regions.items() if region.is_box)
        balls = frozenset(name for name, region in regions.items() if region.reach_is_exact)
        return replace(self, boxes=boxes, balls=balls, _behind={})

    @cached_property
    def last_affine(self) -> set[str]:
        """The affine functions of the sources that something else than such a function reads, as
        they are or with their elements moved."""
        found = set()
        for name, call in self.calls.items():
            if name in self.affine_only:
                continue
            for source in call.names:
                while source not in self.sources and moves_only(self.calls[source]):
                    (source,) = self.calls[source].names
                found.add(source)
        return found & self.affine_only

    @cached_property
    def before_jumps(self) -> set[str]:
        """The nodes that are read by a function with jumps, where a rounding error can change a
        result by much."""
        jumps = lambda name: self.rules[name].jumps(self.calls[name])
        return {source for source, readers in self.readers.items() if any(map(jumps, readers))}


def moves_only(call: Call) -> bool:
    return find_rule(call.node).facts.one_to_one
