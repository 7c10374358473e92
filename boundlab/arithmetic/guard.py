"""What an analysis does about rounding: nothing, or what the proof of an arithmetic needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import DOUBLE, FLOOR, Arithmetic, gamma
from boundlab.arithmetic.constants import Constants
from boundlab.arithmetic.rounded import STEPS, magnitudes
from boundlab.coefficients.coefficients import Coefficients
from boundlab.graph.graph import Node
from boundlab.regions import Box, Region
from boundlab.relaxations.interval import DualNormInterval, Interval
from boundlab.rules.registry import Call
from boundlab.specs.rows import Elements

Lookup = Callable[[str], object]
"""From the name of a node to its value."""


class Guard:
    """The guard of an analysis that takes rounding for nothing."""

    proves = False
    """Whether bounds are proved for an arithmetic."""

    def hull(self, region: Region) -> Interval:
        """The interval of a source."""
        hull, reach = region.hull(), region.reach()
        if reach is None:
            return hull
        return DualNormInterval(hull.lower, hull.upper, reach)

    def constant(self, node: Node, lookup: Lookup) -> Any:
        """The value of a node that is not perturbed."""
        return node.call(*node.arguments(lookup))

    def call(self, call: Call) -> Call:
        """A call, with what is known of the constants that it reads."""
        return call

    def note(self, elements: Elements, interval: Interval) -> None:
        """Look at the interval of a node."""

    def least(self, found: Tensor, rows: Coefficients, of: Interval | Region) -> Tensor:
        """The least values ``found`` of rows over an interval or a region: (rows, samples)."""
        return found

    def withheld(self, bounds: Tensor) -> Tensor:
        """Lower bounds (rows, samples), -inf where nothing is known."""
        return bounds

    def settled(self, elements: Elements, interval: Interval) -> Interval:
        """The interval of an output, infinite where nothing is known."""
        return interval

    def error_of(self, name: str) -> Tensor | None:
        """How far a node that is not perturbed may be from its value; None: not at all."""
        return None


@dataclass(eq=False)
class RoundingGuard(Guard):
    """The guard of an analysis whose bounds hold in an arithmetic. nodes: how many the graph has;
    overflow: (samples,), where a value may leave the range of the format, so that nothing is known
    of what follows."""

    arithmetic: Arithmetic
    nodes: int
    samples: int
    overflow: Tensor | None = None
    constants: Constants = field(init=False)
    proves = True

    def __post_init__(self) -> None:
        self.constants = Constants(self.arithmetic, self.nodes)

    def hull(self, region: Region) -> Interval:
        """Ends of boxes are given. Those of other regions are computed by one sum each, so they are
        off by a rounding of themselves; 0 is 0."""
        hull = region.hull()
        if isinstance(region, Box):
            return hull
        off = 4 * DOUBLE.unit
        return Interval(hull.lower - off * hull.lower.abs(), hull.upper + off * hull.upper.abs())

    def constant(self, node: Node, lookup: Lookup) -> Any:
        return self.constants.evaluate(node, lookup)

    def call(self, call: Call) -> Call:
        errors = self.constants.of(call)
        if not errors:
            return call
        return replace(call, errors=errors)

    @torch.no_grad()
    def note(self, elements: Elements, interval: Interval) -> None:
        """Notes the samples in which a value may overflow. A constant that is infinite is none of
        these."""
        if not interval.dtype.is_floating_point or not interval.lower.numel():
            return
        ends = interval.lower.detach().abs().amax(), interval.upper.detach().abs().amax()
        if all(float(end) <= self.arithmetic.largest for end in ends):
            return
        inside = magnitudes(interval) <= self.arithmetic.largest
        beyond = ~inside & ~(torch.isinf(interval.lower) & (interval.lower == interval.upper))
        found = elements.split(beyond).any(1).expand(self.samples)
        if self.overflow is not None:
            found = found | self.overflow
        self.overflow = found

    def least(self, found: Tensor, rows: Coefficients, of: Interval | Region) -> Tensor:
        """Less what rounding may have added: the inner products of rows with values are off by
        gamma times the products of magnitudes."""
        size = reached(of)
        size = torch.where(torch.isfinite(size), size, 0)  # of masks, which have no coefficients
        share = gamma(STEPS + self.nodes + 2 * size.numel(), DOUBLE.unit)
        return self.withheld(found - rows.apply(torch.abs).dot(share * size) - FLOOR)

    def withheld(self, bounds: Tensor) -> Tensor:
        bounds = bounds.masked_fill(torch.isnan(bounds), -torch.inf)
        if self.overflow is None:
            return bounds
        unknown = self.overflow
        if bounds.shape[-1] != len(unknown):  # of a node that all samples share
            unknown = unknown.any()
        return bounds.masked_fill(unknown, -torch.inf)

    def settled(self, elements: Elements, interval: Interval) -> Interval:
        if not interval.dtype.is_floating_point:
            return interval
        lower, upper = elements.split(interval.lower), elements.split(interval.upper)
        unknown = torch.isnan(lower) | torch.isnan(upper)
        if self.overflow is not None:
            found = self.overflow
            if len(lower) != len(found):
                found = found.any().reshape(1)
            unknown = unknown | found.unsqueeze(1)
        lower = elements.join(lower.masked_fill(unknown, -torch.inf))
        return Interval(lower, elements.join(upper.masked_fill(unknown, torch.inf)))

    def error_of(self, name: str) -> Tensor | None:
        return self.constants.errors.get(name)


def rounded_off(size: Tensor, terms: int) -> Tensor:
    """What rounding takes from sums of so many terms whose magnitudes add up to ``size``."""
    return gamma(STEPS + 2 * terms, DOUBLE.unit) * size + FLOOR


def reached(of: Interval | Region) -> Tensor:
    """The largest magnitudes of the elements, in the larger sets too that a region is cut out of:
    their minima are among those that are compared."""
    if isinstance(of, Interval):
        return magnitudes(of)
    size = magnitudes(of.hull())
    for region in of.wider():
        size = torch.maximum(size, magnitudes(region.hull()))
    return size


def guard_of(arithmetic: Arithmetic | None, nodes: int, samples: int) -> Guard:
    """The guard of an analysis."""
    if arithmetic is None:
        return Guard()
    return RoundingGuard(arithmetic, nodes, samples)
