"""Forward mode (Algorithm 1): linear bounds of every node in the sources, from the inputs on.

A linear function of the sources is a tensor (columns + 1, *shape of the node): one column per
element of one sample of each batched source and per element of each other one, and the constant
term last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard

import torch
from torch import Tensor

from boundlab.arithmetic.guard import reached, rounded_off
from boundlab.arithmetic.rounded import RoundedRule, magnitudes, shifted
from boundlab.coefficients.coefficients import Coefficients
from boundlab.coefficients.dense import inner
from boundlab.graph.graph import Node
from boundlab.methods.analysis import Analysis
from boundlab.methods.backward import finite_above
from boundlab.methods.deadline import check_time
from boundlab.regions import Region
from boundlab.relaxations.identity import IdentityForm, dense
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import ForwardBound, Relaxation

Form = ForwardBound | IdentityForm
"""A linear function of the sources, written out or not."""


class TakesIdentity(Protocol):
    """A relaxation that takes the linear bound of a source in itself as it is."""

    def forward(
        self, lower: Sequence[Form], upper: Sequence[Form]
    ) -> tuple[ForwardBound, ForwardBound]:
        """As :meth:`Relaxation.forward`."""


def _takes_identity(relaxation: Relaxation) -> TypeGuard[TakesIdentity]:
    return relaxation.accepts_identity


@dataclass(eq=False)
class ForwardBounds:
    """The linear bounds found so far in one analysis."""

    analysis: Analysis
    lower: dict[str, Form] = field(default_factory=dict)
    upper: dict[str, Form] = field(default_factory=dict)
    sizes: dict[str, Tensor] = field(default_factory=dict)
    """Where bounds are proved for an arithmetic: for each element, the sum of the magnitudes of all
    terms of its linear bounds, with those of the sources."""

    def _source_shape(self, name: str) -> torch.Size:
        """The shape of one sample of a source."""
        layout = self.analysis.graph.nodes[name].layout
        return layout.sample_shape(self.analysis.regions[name].centre.shape)

    def width(self, name: str) -> int:
        """The number of columns of a source."""
        return self._source_shape(name).numel()

    @property
    def columns(self) -> int:
        return sum(self.width(name) for name in self.analysis.regions)

    def add(self, node: Node, interval: Interval) -> None:
        """Bound one more node whose arguments are bounded."""
        check_time()
        name = node.name
        if name in self.analysis.regions:
            self.lower[name] = self.upper[name] = self._source(node, interval)
            self.sizes[name] = reached(self.analysis.regions[name])
        elif not interval.dtype.is_floating_point:
            zeros = torch.zeros(self.columns, *interval.shape, device=interval.device)
            self.lower[name] = torch.cat([zeros, interval.lower[None].to(zeros)])
            self.upper[name] = torch.cat([zeros, interval.upper[None].to(zeros)])
            self.sizes[name] = magnitudes(interval).to(zeros)
        else:
            names = self.analysis.calls[name].names
            relaxation = self.analysis.relaxation(name)
            lower = [self.lower[source] for source in names]
            upper = [self.upper[source] for source in names]
            if node.layout.plain and _takes_identity(relaxation):
                found = relaxation.forward(lower, upper)
            else:
                found = relaxation.forward([dense(f) for f in lower], [dense(f) for f in upper])
            low, up = found
            if torch.promote_types(low.dtype, interval.dtype) != interval.dtype:
                low, up = self._below(low, node, interval), -self._below(-up, node, interval)
            if self.analysis.guard.proves:
                low, up = self._with_room(node, relaxation, low, up)
            self.lower[name], self.upper[name] = low, up

    def _with_room(
        self, node: Node, relaxation: Relaxation, low: ForwardBound, up: ForwardBound
    ) -> tuple[ForwardBound, ForwardBound]:
        """Linear bounds with room for what is rounded in making them from those of the arguments:
        gamma times the magnitudes of all that is added up."""
        call, rule = self.analysis.calls[node.name], self.analysis.plan.rules[node.name]
        assert isinstance(rule, RoundedRule)
        room = rule.of_analysis(call, relaxation, [self.sizes[name] for name in call.names])
        low, up = shifted(low, -room), shifted(up, room)
        self.sizes[node.name] = self._size(torch.maximum(low.abs(), up.abs()), node)
        return low, up

    def _size(self, form: ForwardBound, node: Node) -> Tensor:
        """The sum of the terms of a form that is not negative, at the magnitudes of the sources, in
        the shape of the node."""
        by_sample = node.layout.samples_first(form, self.analysis.samples)
        _, samples, size = by_sample.shape
        total = torch.zeros(size, samples, dtype=form.dtype, device=form.device)
        for region, rows in self._by_source(by_sample[:-1].transpose(1, 2), node):
            total = total + inner(rows, reached(region))
        return node.layout.place(total.T[None], form.shape[1:])[0] + form[-1]

    def _below(self, form: ForwardBound, node: Node, interval: Interval) -> ForwardBound:
        """A form below another one, in the type of the node: a cast leaves it in a longer one.

        With f = s + r, s the coefficients in the shorter type and r what rounding took from them,
        f >= s + min r over the regions. The constant term is rounded as well, by at most eps / 2
        of its size; eps and the smallest normal number are taken off. Where s overflows, 0 takes
        its place.
        """
        dtype = interval.dtype
        short = form.to(dtype)
        short = torch.where(torch.isfinite(short).all(0), short, 0)
        lost = self.minimum(form - short.to(form.dtype), node)
        constant = (short[-1].to(lost.dtype) + lost).to(dtype)
        kind = torch.finfo(dtype)
        room = kind.eps * constant.abs() + kind.smallest_normal
        return torch.cat([short[:-1], (constant - room)[None]])

    def _source(self, node: Node, interval: Interval) -> Form:
        """A source as a linear function of the sources."""
        names = list(self.analysis.regions)
        first = sum(self.width(name) for name in names[: names.index(node.name)])
        if not node.layout.batched:
            return IdentityForm(first, self.columns, interval)
        size = self.width(node.name)
        dtype, device = interval.dtype, interval.device
        form = torch.zeros(self.columns + 1, *interval.shape, dtype=dtype, device=device)
        unit = torch.eye(size, dtype=dtype, device=device)
        form[first : first + size] = unit.reshape(size, 1, *interval.shape[1:])
        return form

    def _by_source(self, columns: Tensor, node: Node) -> Iterator[tuple[Region, Tensor]]:
        """The coefficients (columns, rows, samples) of functions of a node as those of each source
        that it may depend on: (rows, samples, *shape of one sample)."""
        start = 0
        for name, region in self.analysis.regions.items():
            shape = self._source_shape(name)
            block = columns[start : start + shape.numel()]
            start += shape.numel()
            # a node that all samples share depends on sources that they share
            if node.layout.batched or not self.analysis.graph.nodes[name].layout.batched:
                yield region, block.permute(1, 2, 0).reshape(*columns.shape[1:], *shape)

    def minimum(self, form: ForwardBound, node: Node) -> Tensor:
        """The minimum of a form over the regions, in the shape of the node; where it is beyond all
        numbers above it says nothing, as in backward mode."""
        by_sample = node.layout.samples_first(form, self.analysis.samples)
        _, samples, size = by_sample.shape
        total = torch.zeros(size, samples, dtype=form.dtype, device=form.device)
        for region, rows in self._by_source(by_sample[:-1].transpose(1, 2), node):
            total = total + region.minimum(rows)
        return finite_above(node.layout.place(total.T[None], form.shape[1:])[0] + form[-1])

    def interval(self, node: Node) -> Interval:
        lower = self.minimum(dense(self.lower[node.name]), node)
        upper = -self.minimum(-dense(self.upper[node.name]), node)
        if not self.analysis.guard.proves:
            return Interval(lower, upper)
        room = rounded_off(self.sizes[node.name], self.columns)
        return Interval(lower - room, upper + room)

    def lower_rows(self, node: Node, rows: Coefficients) -> Tensor:
        """Lower bounds of rows of a node from its linear bounds in the sources: (rows, samples)."""
        # (columns + 1, samples, out) and (rows, samples, out)
        low = node.layout.samples_first(dense(self.lower[node.name]), self.analysis.samples)
        up = node.layout.samples_first(dense(self.upper[node.name]), self.analysis.samples)
        c = rows.by_sample()
        from_below = torch.einsum("rso,cso->crs", c.clamp(min=0), low)
        merged = from_below + torch.einsum("rso,cso->crs", c.clamp(max=0), up)
        total = merged[-1]
        for region, part in self._by_source(merged[:-1], node):
            total = total + region.minimum(part)
        if not self.analysis.guard.proves:
            return finite_above(total)
        room = rounded_off(self.sizes[node.name], self.columns + c.shape[2])
        return self.analysis.guard.withheld(total - rows.apply(torch.abs).dot(room))
