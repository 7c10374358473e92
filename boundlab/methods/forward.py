"""Forward mode (Algorithm 1): linear bounds of every node in the sources, from the inputs on.

A linear function of the sources is a tensor (columns + 1, *shape of the node): one column per
element of one sample of each batched source and per element of each other one, and the constant
term last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from boundlab.graph.graph import Node
from boundlab.graph.layout import Layout
from boundlab.methods.analysis import Analysis
from boundlab.relaxations.identity import IdentityForm, dense
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import ForwardBound


@dataclass(eq=False)
class ForwardBounds:
    """The linear bounds found so far in one analysis."""

    analysis: Analysis
    lower: dict[str, ForwardBound | IdentityForm] = field(default_factory=dict)
    upper: dict[str, ForwardBound | IdentityForm] = field(default_factory=dict)

    def width(self, name: str) -> int:
        """The number of columns of a source."""
        shape = self.analysis.regions[name].centre.shape
        return (
            shape[1:].numel()
            if self.analysis.graph.nodes[name].layout is not None
            else shape.numel()
        )

    @property
    def columns(self) -> int:
        return sum(self.width(name) for name in self.analysis.regions)

    def add(self, node: Node, interval: Interval) -> None:
        """Bound one more node whose arguments are bounded."""
        name = node.name
        if name in self.analysis.regions:
            self.lower[name] = self.upper[name] = self._source(node, interval)
        elif not interval.dtype.is_floating_point:
            zeros = torch.zeros(self.columns, *interval.shape, device=interval.device)
            self.lower[name] = torch.cat([zeros, interval.lower[None].to(zeros)])
            self.upper[name] = torch.cat([zeros, interval.upper[None].to(zeros)])
        else:
            names = self.analysis.calls[name].names
            relaxation = self.analysis.relaxation(name)
            lower, upper = [self.lower[n] for n in names], [self.upper[n] for n in names]
            if not (relaxation.accepts_identity and node.layout == Layout()):
                lower, upper = [dense(form) for form in lower], [dense(form) for form in upper]
            self.lower[name], self.upper[name] = relaxation.forward(lower, upper)  # type: ignore[arg-type]

    def _source(self, node: Node, interval: Interval) -> ForwardBound | IdentityForm:
        names = list(self.analysis.regions)
        first = sum(self.width(name) for name in names[: names.index(node.name)])
        if node.layout is None:
            return IdentityForm(first, self.columns, interval)
        size = self.width(node.name)
        form = torch.zeros(
            self.columns + 1, *interval.shape, dtype=interval.dtype, device=interval.device
        )
        form[first : first + size] = torch.eye(size, dtype=form.dtype, device=form.device).reshape(
            size, 1, *interval.shape[1:]
        )
        return form

    def rows(self, form: ForwardBound, node: Node) -> dict[str, Tensor]:
        """The coefficients of a form by source: (elements of a sample, samples, *shape of the
        source)."""
        samples = self.analysis.samples if node.layout is not None else 1
        split = (
            form[:-1].reshape(form.shape[0] - 1, 1, -1)
            if node.layout is None
            else node.layout.samples_first(form[:-1], samples)
        )
        found, start = {}, 0
        for name, region in self.analysis.regions.items():
            size = self.width(name)
            shape = region.centre.shape
            shape = shape[1:] if self.analysis.graph.nodes[name].layout is not None else shape
            # else the node cannot depend on it
            if node.layout is not None or self.analysis.graph.nodes[name].layout is None:
                block = split[start : start + size].permute(2, 1, 0)  # (elements, samples, columns)
                found[name] = block.reshape(block.shape[0], samples, *shape)
            start += size
        return found

    def minimum(self, form: ForwardBound, node: Node) -> Tensor:
        """The minimum of a form over the regions, in the shape of the node."""
        samples = self.analysis.samples if node.layout is not None else 1
        shape = form.shape[1:]
        # (elements, samples)
        total = torch.zeros(
            shape.numel() // max(samples, 1), samples, dtype=form.dtype, device=form.device
        )
        for name, rows in self.rows(form, node).items():
            total = total + self.analysis.regions[name].minimum(rows)
        flat = total.T[None]
        placed = flat.reshape(shape) if node.layout is None else node.layout.place(flat, shape)[0]
        return placed + form[-1]

    def interval(self, node: Node) -> Interval:
        return Interval(
            self.minimum(dense(self.lower[node.name]), node),
            -self.minimum(-dense(self.upper[node.name]), node),
        )

    def lower_rows(self, node: Node, rows: Tensor) -> Tensor:
        """Lower bounds of rows (rows, *shape) of a node from its linear bounds in the sources:
        (rows, samples)."""
        analysis = self.analysis
        samples = analysis.samples if node.layout is not None else 1
        lower, upper = dense(self.lower[node.name]), dense(self.upper[node.name])
        by_sample: Callable[[Tensor], Tensor] = (
            (lambda t: t.reshape(t.shape[0], 1, -1))
            if node.layout is None
            else (lambda t: node.layout.samples_first(t, samples))  # type: ignore[union-attr]
        )
        c = by_sample(rows.squeeze(1) if node.layout is None else rows)  # (rows, samples, out)
        low, up = by_sample(lower), by_sample(upper)  # (columns + 1, samples, out)
        merged = torch.einsum("rso,cso->crs", c.clamp(min=0), low) + torch.einsum(
            "rso,cso->crs", c.clamp(max=0), up
        )
        total, start = merged[-1], 0
        for name, region in analysis.regions.items():
            size = self.width(name)
            shape = region.centre.shape
            shape = shape[1:] if analysis.graph.nodes[name].layout is not None else shape
            # else the node cannot depend on it
            if node.layout is not None or analysis.graph.nodes[name].layout is None:
                block = merged[start : start + size].permute(1, 2, 0)  # (rows, samples, columns)
                total = total + region.minimum(block.reshape(len(rows), samples, *shape))
            start += size
        return total
