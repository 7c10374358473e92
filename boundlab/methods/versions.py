"""Exact bounds of what reads one position of a sentence at a time.

A region whose positions choose among finitely many values (``Region.versions``) gives as many versions of the whole input: in
version k every position takes its k-th value. An element of a node that depends on one position alone takes, over the region,
just the values that it has in the versions, however the positions may be combined: their least and largest are its bounds.
Which nodes are of that kind shows in a trial: a NaN at one position comes out at the elements that depend on it, since
affine operators let no NaN vanish. Two positions differ in a digit of their number, so an element that depends on both meets a
NaN at the positions where that digit is 0 and one at those where it is 1: twice as many runs as there are digits tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from boundlab.graph import Node
from boundlab.interval import Interval
from boundlab.methods.analysis import Analysis
from boundlab.methods.plan import moves_only
from boundlab.relaxation import mapped


@dataclass(frozen=True, eq=False)
class Versions:
    """The values of affine nodes in all versions of the input, made when they are first asked for."""

    analysis: Analysis
    values: dict[str, Tensor]
    exact: set[str]
    """The nodes whose intervals are known to be exact."""
    _probes: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(analysis: Analysis) -> Versions | None:
        """None if no region has versions."""
        found = {name: region.versions() for name, region in analysis.regions.items()}
        values = {name: versions for name, versions in found.items() if versions is not None}
        return Versions(analysis, values, set(values)) if values else None

    def bound(self, node: Node, interval: Interval) -> Interval | None:
        """The exact bounds of an affine node, or None if there are none to be had this way. interval: by interval arithmetic."""
        plan, call = self.analysis.plan, self.analysis.calls.get(node.name)
        if call is None or node.name not in plan.affine_only:
            return None
        if moves_only(call):
            found = interval if call.names[0] in self.exact else None
        else:
            sources = [name for name in plan.behind(node.name) if name in self.analysis.regions]
            wanted = node.name in plan.last_affine and len(sources) == 1 and sources[0] in self.values
            found = self._extremes(node.name) if wanted and self.is_apart(node.name, sources[0]) else None
        if found is not None:
            self.exact.add(node.name)
        return found

    def _extremes(self, name: str) -> Interval:
        values = self._run(name, self.values)
        return Interval(values.amin(0), values.amax(0))

    def is_apart(self, name: str, source: str) -> bool:
        """Whether every element of a node depends on one position of the source at most. That may change with other values that
        the node reads (a mask), so it is asked anew for every question."""
        with torch.no_grad():
            centre = self.analysis.regions[source].centre
            if source not in self._probes:
                place = torch.arange(centre.shape[1], device=centre.device)
                digits = [(place >> k & 1).bool() for k in range(max(1, (centre.shape[1] - 1).bit_length()))]
                at = torch.stack([half for digit in digits for half in (digit, ~digit)])
                self._probes[source] = centre.new_zeros(len(at), *centre.shape).masked_fill(at[:, None, :, None], torch.nan)
            hit = torch.isnan(self._run(name, self._probes))
            return not bool((hit[::2] & hit[1::2]).any())

    def _run(self, name: str, known: dict[str, Tensor]) -> Tensor:
        """A node for all runs in ``known`` at once, which keeps what was found on the way."""
        if name in known:
            return known[name]
        call = self.analysis.calls[name]
        arguments = [self._run(source, known) for source in call.names]
        known[name] = mapped(call.bind(), arguments)
        return known[name]
