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
        return ExactPerPosition(analysis, values, set(values)) if values else None

    def bound(self, node: Node, interval: Interval) -> Interval | None:
        """The exact bounds of an affine node, or None if there are none to be had this way.
        interval: by interval arithmetic."""
        plan, call = self.analysis.plan, self.analysis.calls.get(node.name)
        if call is None or node.name not in plan.affine_only:
            return None
        if moves_only(call):
            found = interval if call.names[0] in self.exact else None
        else:
            sources = [name for name in plan.behind(node.name) if name in self.analysis.regions]
            wanted = (
                node.name in plan.last_affine and len(sources) == 1 and sources[0] in self.values
            )
            found = self._extremes(node.name) if wanted and self.is_apart(node.name) else None
        if found is not None:
            self.exact.add(node.name)
        return found

    def _extremes(self, name: str) -> Interval:
        values = self._run(name, self.values)
        return Interval(values.amin(0), values.amax(0))

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
            x = self.analysis.interval(name).lower
            count = (
                torch.arange(1, x.shape[1] + 1, dtype=torch.float64, device=x.device)
                if x.dim() > 1
                else None
            )
            return (
                None
                if count is None or name not in self.values
                else count.reshape(-1, *[1] * (x.dim() - 2)).expand(x.shape)
            )
        call = self.analysis.calls[name]
        found = [self._owners(source) for source in call.names]
        owners = [owner for owner in found if owner is not None]
        if len(owners) < len(found):
            return None
        kind = _structure(call.node)
        if find_rule(call.node).facts.moves:
            blank = lambda leaf: (
                torch.zeros_like(leaf, dtype=torch.float64)
                if isinstance(leaf, Tensor) and leaf.is_floating_point()
                else leaf
            )
            moved: Tensor = call.bind(constant=blank)(*owners)
            return moved
        if kind is pointwise:
            return _merged(owners, self.analysis.interval(name).shape)
        return self._beside(call, owners)

    def _beside(self, call: Call, owners: list[Tensor]) -> Tensor | None:
        """Of an operator that is parallel along the dimension that counts the positions, or reads
        one position alone."""
        values, shape = self.analysis.values, self.analysis.interval(call.node.name).shape
        only = torch.cat([owner.unique() for owner in owners]).unique()
        if len(only[only > 0]) <= 1:
            return only.clamp(min=0).amax().expand(shape)
        known = {source: values[source] for source in call.node.inputs}
        shapes = {
            source: tuple(value.shape)
            for source, value in known.items()
            if isinstance(value, (Tensor, Interval))
        }
        lines = {source: _along(owner) for source, owner in zip(call.names, owners, strict=True)}
        places = next(iter(lines.values()))[1]
        if places is None or any(
            other is None or not torch.equal(other, places) for _, other in lines.values()
        ):
            return None
        layouts, count = {source: Layout(dim) for source, (dim, _) in lines.items()}, len(places)
        masks = frozenset(source for source in shapes if known[source].dtype == torch.bool)
        numbers = {source: value for source, value in known.items() if isinstance(value, int)}
        try:
            site = Site(
                call.node, count, {**shapes, call.node.name: tuple(shape)}, layouts, numbers, masks
            )
            layout = find_structure(call.node)(site)
        except (Meets, Unknown):
            return None
        return (
            None
            if layout is None or layout.outer * layout.inner > 1
            else _spread(places, layout.dim, shape)
        )

    def _run(self, name: str, known: dict[str, Tensor]) -> Tensor:
        """A node for all runs in ``known`` at once, which keeps what was found on the way."""
        if name in known:
            return known[name]
        call = self.analysis.calls[name]
        arguments = [self._run(source, known) for source in call.names]
        known[name] = mapped(call.bind(), arguments)
        return known[name]


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
        places = owners.movedim(dim, 0).flatten(1)[:, 0] if owners.numel() else owners.new_zeros(0)
        if bool((owners == _spread(places, dim, owners.shape)).all()):
            return dim, places
    return 0, None


def _spread(places: Tensor, dim: int, shape: torch.Size) -> Tensor:
    return places.reshape(-1, *[1] * (len(shape) - dim - 1)).expand(shape)
