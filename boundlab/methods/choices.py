"""Exact bounds of what reads one position of a sentence at a time.

A region whose positions choose among finitely many values (``Region.versions``) gives as many
versions of the whole input: in version k every position takes its k-th value. An element of a node
that depends on one position alone takes, over the region, just the values that it has in the
versions, however the positions may be combined: their least and largest are its bounds. Which nodes
are of that kind is decided by structure: for every element it is noted which position it depends
on. Operators that only move elements move these notes; others must read equal ones, or be parallel
along the dimension that counts the positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from boundlab.graph.graph import Node
from boundlab.graph.layout import Layout
from boundlab.methods.analysis import Analysis
from boundlab.methods.plan import moves_only
from boundlab.relaxations.affine_map import mapped
from boundlab.relaxations.interval import Interval
from boundlab.rules.registry import Call, find_rule
from boundlab.rules.structure import Meets, Site, Structure, Unknown, find_structure, pointwise


@dataclass(frozen=True, eq=False)
class ExactPerPosition:
    """The values of affine nodes in all versions of the input, made when they are first asked
    for."""

    analysis: Analysis
    values: dict[str, Tensor]
    exact: set[str]
    """The nodes whose intervals are known to be exact."""
    _known: dict[str, Tensor | None] = field(default_factory=dict)

    @staticmethod
    def of(analysis: Analysis) -> ExactPerPosition | None:
        """None if no region has versions."""
        found = {name: region.versions() for name, region in analysis.regions.items()}
        values = {name: versions for name, versions in found.items() if versions is not None}
        if not values:
            return None
        return ExactPerPosition(analysis, values, set(values))

    def bound(self, node: Node, interval: Interval) -> Interval | None:
        """The exact bounds of an affine node, or None if there are none to be had this way.
        interval: by interval arithmetic."""
        call = self.analysis.calls.get(node.name)
        if call is None or node.name not in self.analysis.plan.affine_only:
            return None
        if moves_only(call):
            if call.names[0] not in self.exact:
                return None
            found = interval
        else:
            if not self._is_wanted(node.name) or not self.is_apart(node.name):
                return None
            values = self._run(node.name, self.values)
            found = Interval(values.amin(0), values.amax(0))
        self.exact.add(node.name)
        return found

    def _is_wanted(self, name: str) -> bool:
        """Whether a node is the last affine one on its way, from one source that has versions."""
        plan = self.analysis.plan
        if name not in plan.last_affine:
            return False
        sources = [source for source in plan.behind(name) if source in self.analysis.regions]
        return len(sources) == 1 and sources[0] in self.values

    def is_apart(self, name: str) -> bool:
        """Whether every element of a node depends on one position of the source at most. That may
        change with indices that the node reads, so it is asked anew for every question."""
        return self._owners(name) is not None

    def _owners(self, name: str) -> Tensor | None:
        """For every element of a node the number of the position that it depends on, counted from
        1, and 0 for none; None if an element depends on several."""
        if name not in self._known:
            with torch.no_grad():
                self._known[name] = self._found_owners(name)
        return self._known[name]

    def _found_owners(self, name: str) -> Tensor | None:
        if name in self.analysis.regions:
            return self._owners_in_source(name)
        call = self.analysis.calls[name]
        found = [self._owners(source) for source in call.names]
        owners = [owner for owner in found if owner is not None]
        if len(owners) < len(found):
            return None
        if find_rule(call.node).facts.moves:
            moved: Tensor = call.bind(constant=_of_nobody)(*owners)
            return moved
        if _structure(call.node) is pointwise:
            return _merged(owners, self.analysis.interval(name).shape)
        return self._beside(call, owners)

    def _owners_in_source(self, name: str) -> Tensor | None:
        """The positions of a source (samples, positions, ...) themselves."""
        x = self.analysis.interval(name).lower
        if x.dim() < 2 or name not in self.values:
            return None
        positions = torch.arange(1, x.shape[1] + 1, dtype=torch.float64, device=x.device)
        return _spread(positions, 1, x.shape)

    def _beside(self, call: Call, owners: list[Tensor]) -> Tensor | None:
        """Of an operator that is parallel along the dimension that counts the positions, or reads
        one position alone."""
        shape = self.analysis.interval(call.node.name).shape
        only = torch.cat([owner.unique() for owner in owners]).unique()
        if len(only[only > 0]) <= 1:
            return only.clamp(min=0).amax().expand(shape)
        lines = [_along(owner) for owner in owners]
        places = lines[0][1]
        if places is None:
            return None
        if any(other is None or not torch.equal(other, places) for _, other in lines):
            return None
        layouts = {source: Layout(dim) for source, (dim, _) in zip(call.names, lines, strict=True)}
        layout = self._layout(call.node, layouts, len(places))
        if layout is None or layout.outer * layout.inner > 1:
            return None
        return _spread(places, layout.dim, shape)

    def _layout(self, node: Node, layouts: dict[str, Layout], count: int) -> Layout | None:
        """Where ``count`` positions lie in a node, as if they were samples, given where they lie in
        its arguments; None if they meet there, or that is not known."""
        known = {source: self.analysis.values[source] for source in node.inputs}
        tensors = {
            source: value
            for source, value in known.items()
            if isinstance(value, (Tensor, Interval))
        }
        shapes = {source: tuple(value.shape) for source, value in tensors.items()}
        shapes[node.name] = tuple(self.analysis.interval(node.name).shape)
        masks = frozenset(source for source, x in tensors.items() if x.dtype == torch.bool)
        numbers = {source: value for source, value in known.items() if isinstance(value, int)}
        try:
            return find_structure(node)(Site(node, count, shapes, layouts, numbers, masks))
        except (Meets, Unknown):
            return None

    def _run(self, name: str, known: dict[str, Tensor]) -> Tensor:
        """A node for all runs in ``known`` at once, which keeps what was found on the way."""
        if name in known:
            return known[name]
        call = self.analysis.calls[name]
        arguments = [self._run(source, known) for source in call.names]
        known[name] = mapped(call.bind(), arguments)
        return known[name]


def _of_nobody(leaf: object) -> object:
    """A constant as what depends on no position."""
    if isinstance(leaf, Tensor) and leaf.is_floating_point():
        return torch.zeros_like(leaf, dtype=torch.float64)
    return leaf


def _structure(node: Node) -> Structure | None:
    try:
        return find_structure(node)
    except Unknown:
        return None


def _merged(owners: list[Tensor], shape: torch.Size) -> Tensor | None:
    """What an elementwise operator leaves: for each element the only position that its arguments
    depend on."""
    total = torch.zeros(shape, dtype=torch.float64, device=owners[0].device)
    for owner in owners:
        if bool(((total > 0) & (owner > 0) & (total != owner)).any()):
            return None
        total = torch.maximum(total, owner)
    return total


def _along(owners: Tensor) -> tuple[int, Tensor | None]:
    """The only dimension along which the positions change, and which there are; no positions if
    there is no such dimension."""
    for dim in range(owners.dim()):
        places = owners.new_zeros(0)
        if owners.numel():
            places = owners.movedim(dim, 0).flatten(1)[:, 0]
        if bool((owners == _spread(places, dim, owners.shape)).all()):
            return dim, places
    return 0, None


def _spread(places: Tensor, dim: int, shape: torch.Size) -> Tensor:
    """Positions along one dimension of a node: (size of the dimension,) -> (*shape)."""
    return places.reshape(-1, *[1] * (len(shape) - dim - 1)).expand(shape)
