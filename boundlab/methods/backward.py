"""Backward mode (Algorithm 2): linear bounds of one node, propagated back to the sources."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.coefficients.dense import Dense, PerSample, of_node
from boundlab.coefficients.window import Window
from boundlab.graph.layout import SampleLayout
from boundlab.methods.analysis import Analysis
from boundlab.methods.deadline import check_time
from boundlab.methods.memory import keep
from boundlab.relaxations.relaxation import Relaxation, Terms

MAX_WINDOW_FRACTION = 0.5
"""The share of a node up to which a window is cheaper than dense rows."""


def out_degrees(
    analysis: Analysis, starts: Iterable[str], stop: Callable[[str], bool]
) -> dict[str, int]:
    """GetOutDegree: for each node that the starts depend on, how many nodes between them read
    it."""
    degrees = dict.fromkeys(starts, 0)
    queue = deque(degrees)
    while queue:
        name = queue.popleft()
        if stop(name):
            continue
        for source in set(analysis.calls[name].names):
            if source not in degrees:
                degrees[source] = 0
                queue.append(source)
            degrees[source] += 1
    return degrees


class WindowRelaxation(Protocol):
    """What serves windows only: a relaxation of the elements that they see."""

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float]:
        """As :meth:`Relaxation.backward_window`."""


Propagated = tuple[Sequence[Coefficients], Tensor | float]
"""Coefficients of the arguments of a node, and the constant (rows, samples)."""
Choose = Callable[[str, Coefficients], Relaxation | WindowRelaxation]
"""From a node and its coefficients: its relaxation."""
Visit = Callable[[str, Coefficients, Tensor, bool], Tensor | None]
"""From a node, its coefficients, the bias, and whether no other node has any: the rows to keep
(fewer rows, samples), or None for all."""
Adjust = Callable[[str, Coefficients], tuple[Coefficients, Tensor | float]]
"""From a node and its coefficients: other ones, and a constant (rows, samples), whose sum is no
larger on the set in question."""


@dataclass(frozen=True, eq=False)
class Steps:
    """How a backward pass differs from the plain one to the sources.

    stop: the nodes that it ends at, beside the sources. visit: is shown the coefficients of each
    node, and drops rows. relaxation: of a node, if not the one that the analysis chooses. adjust:
    other coefficients for a node, before its relaxation.
    """

    stop: Callable[[str], bool] | None = None
    visit: Visit | None = None
    relaxation: Choose | None = None
    adjust: Adjust | None = None


PLAIN_STEPS = Steps()


def propagate_backward(
    analysis: Analysis, target: str, rows: Coefficients, steps: Steps = PLAIN_STEPS
) -> tuple[dict[str, Coefficients], Tensor]:
    """BoundBackward: ``<rows, target> >= sum over ends of <coefficients, end> + bias``. Returns the
    coefficients of the ends and the bias (rows, samples)."""
    samples = analysis.graph.nodes[target].layout.count(analysis.samples)
    bias = torch.zeros(len(rows), samples, dtype=rows.dtype, device=rows.device)
    return propagate_from(analysis, {target: rows}, bias, steps)


def propagate_from(
    analysis: Analysis,
    starts: Mapping[str, Coefficients],
    bias: Tensor,
    steps: Steps = PLAIN_STEPS,
) -> tuple[dict[str, Coefficients], Tensor]:
    """The same from several nodes at once, such as the ends where an earlier call has stopped, with
    the bias that it found."""

    def ends(name: str) -> bool:
        return name in analysis.regions or (steps.stop is not None and steps.stop(name))

    degrees = out_degrees(analysis, starts, ends)
    state = _Pass(analysis, steps, dict(starts))
    finished: dict[str, Coefficients] = {}
    queue = deque(name for name in starts if degrees[name] == 0)
    while queue:
        check_time()
        name = queue.popleft()
        current = state.pending.pop(name, None)
        if ends(name):
            if current is not None:
                finished[name] = current
            continue
        if current is not None:
            alone = not state.pending and not finished and name not in starts
            bias = state.through(name, current, bias, alone)
            current = None  # nothing may keep coefficients while the next node is at work
            if not len(bias):
                return {}, bias
        for source in set(analysis.calls[name].names):
            degrees[source] -= 1
            if degrees[source] == 0:
                queue.append(source)
    return finished, bias


@dataclass(frozen=True, eq=False)
class _Pass:
    """A backward pass at work. pending: the coefficients found so far of nodes that are read by
    others too."""

    analysis: Analysis
    steps: Steps
    pending: dict[str, Coefficients]

    def through(self, name: str, rows: Coefficients, bias: Tensor, alone: bool) -> Tensor:
        """Propagate the coefficients of one node to its arguments; returns the bias. alone: no
        other node has coefficients."""
        if self.steps.visit is not None:
            plain = self.analysis.graph.nodes[name].layout.plain
            kept = self.steps.visit(name, rows, bias, alone and plain)
            if kept is not None:
                rows, bias = rows.pick(kept), bias.gather(0, kept)
                if not len(kept):
                    return bias
        if self.steps.adjust is not None:
            rows, constant = self.steps.adjust(name, rows)
            bias = bias + constant
        propagated = _step(self.analysis, name, rows, self.steps.relaxation)
        for constant in self._accumulate(name, propagated):
            bias = bias + constant
        return bias

    def _accumulate(self, name: str, found: Propagated) -> Iterator[Tensor | float]:
        """Add the coefficients of a node's arguments to those that wait for other readers of
        these; yields the constants."""
        parts, constant = found
        if not isinstance(constant, float) or constant != 0:
            yield constant
        for source, part in zip(self.analysis.calls[name].names, parts, strict=True):
            interval = self.analysis.interval(source)
            if not interval.dtype.is_floating_point:
                yield self.analysis.least(source, part)  # a truth value has no slope: it ends here
            elif source in self.pending:
                self.pending[source] = self.pending[source] + part
            else:
                self.pending[source] = part


def _step(analysis: Analysis, name: str, rows: Coefficients, choose: Choose | None) -> Propagated:
    """F_i for one node: coefficients of its arguments, and the constant per row and sample."""
    if isinstance(rows, Window) and not _stays_narrow(analysis, name, rows):
        rows = rows.whole()
    relaxation: Relaxation | WindowRelaxation
    if choose is None:
        relaxation = analysis.relaxation(name)
    else:
        relaxation = choose(name, rows)
    found: Propagated | None = None
    if isinstance(rows, Window):
        found = relaxation.backward_window(rows)
    if found is None:
        assert isinstance(relaxation, Relaxation), "declined what it was chosen for"
        found = _dense_step(analysis, name, relaxation, rows.whole())
    if choose is None:  # else an optimiser takes its own gradients, and lets go of what it kept
        keep(analysis, found[0])
    return found


def _stays_narrow(analysis: Analysis, name: str, rows: Window) -> bool:
    """Whether windows are worth keeping: beyond half of the node dense rows are cheaper."""
    nodes = analysis.graph.nodes
    plain = all(nodes[source].layout.plain for source in analysis.calls[name].names)
    return plain and rows.fraction <= MAX_WINDOW_FRACTION


def _dense_step(analysis: Analysis, name: str, relaxation: Relaxation, rows: Dense) -> Propagated:
    """F_i for coefficients of every element. Where arguments without samples (weights) meet a batch
    the coefficients of each sample are kept apart."""
    if isinstance(rows, PerSample):
        flat, terms = relaxation.backward(rows.flat())
        return [rows.unflat(part) for part in flat], _constant(rows, terms)
    layouts = [analysis.graph.nodes[source].layout for source in analysis.calls[name].names]
    shared = {k for k, layout in enumerate(layouts) if not layout.batched}
    parts, terms = _pulled_back(relaxation, rows, shared)
    propagated = [
        _of_argument(part, layout, rows.samples)
        for part, layout in zip(parts, layouts, strict=True)
    ]
    return propagated, _constant(rows, terms)


def _pulled_back(
    relaxation: Relaxation, rows: Dense, shared: set[int]
) -> tuple[list[Coefficients | Tensor], Terms]:
    """The coefficients of the arguments, those of the ``shared`` ones sample by sample, and the
    terms of the constant."""
    if not shared:
        parts, terms = relaxation.backward(rows.values)
        return list(parts), terms
    if rows.layout.plain:
        closed = relaxation.backward_per_sample(rows.values, shared)
        if closed is not None:
            return list(closed[0]), closed[1]
    parts, terms = relaxation.backward(rows.values)
    found: list[Coefficients | Tensor] = list(parts)
    copies = PerSample.of(rows.layout.separate(rows.values, rows.samples))
    apart, _ = relaxation.backward(copies.flat())
    for k in shared:
        found[k] = copies.unflat(apart[k])
    return found, terms


def _of_argument(part: Coefficients | Tensor, layout: SampleLayout, samples: int) -> Coefficients:
    if isinstance(part, Tensor):
        return of_node(part, layout, samples)
    return part


def _constant(rows: Dense, terms: Terms) -> Tensor | float:
    """The sum of the terms of a backward step: (rows, samples), 0.0 if there are none."""
    total: Tensor | float = 0.0
    for part, constant in terms:
        total = total + rows.term(part, constant)
    return total


def concretize(
    analysis: Analysis, coefficients: Mapping[str, Coefficients], bias: Tensor
) -> Tensor:
    """The minimum over the regions: (rows, samples)."""
    for name, rows in coefficients.items():
        bias = bias + analysis.least(name, rows)
    return finite_above(bias)


def finite_above(least: Tensor) -> Tensor:
    """Lower bounds, of which one beyond all numbers above says nothing: a sum that overflows may
    have been finite, or less than what is left out by rounding."""
    return least.masked_fill(torch.isposinf(least), -torch.inf)
