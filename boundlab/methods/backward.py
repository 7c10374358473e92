"""Backward mode (Algorithm 2): linear bounds of one node, pulled back to the sources.

Rows are one-sided: each is the coefficient vector of one quantity that is bounded from below. Rows
of a node with a batch have the node's own layout, (rows, *shape); those of a node without one (a
weight) keep a copy for each sample, (rows, samples, *shape), because different samples pull it in
different directions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundlab.coefficients.outer import Outer
from boundlab.coefficients.window import Window, pick
from boundlab.graph.layout import Layout
from boundlab.kernels.reductions import product
from boundlab.methods.analysis import Analysis
from boundlab.methods.memory import keep
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import Relaxation

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


Rows = Tensor | Window
Ends = Rows | Outer
"""Coefficients of a source: those of a weight may be left in factors."""
Choose = Callable[[str, Rows], Relaxation]
"""From a node and its coefficients: its relaxation."""
Visit = Callable[[str, Rows, Tensor, bool], Tensor | None]
"""From a node, its coefficients, the bias, and whether no other node has any: the rows to keep
(fewer rows, samples), or None for all."""
Adjust = Callable[[str, Rows], tuple[Rows, Tensor | float]]
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


PLAIN = Steps()


def propagate_backward(
    analysis: Analysis, target: str, rows: Rows, steps: Steps = PLAIN
) -> tuple[dict[str, Ends], Tensor]:
    """BoundBackward: ``<rows, target> >= sum over ends of <coefficients, end> + bias``.

    rows: (rows, *shape), or (rows, 1, *shape) for a target without a batch, or windows. Returns the
    coefficients of the ends and the bias (rows, samples).
    """
    samples = analysis.samples if analysis.graph.nodes[target].layout is not None else 1
    like = rows.values if isinstance(rows, Window) else rows
    bias = torch.zeros(like.shape[0], samples, dtype=like.dtype, device=like.device)
    return propagate_from(analysis, {target: rows}, bias, steps)


def propagate_from(
    analysis: Analysis, starts: Mapping[str, Ends], bias: Tensor, steps: Steps = PLAIN
) -> tuple[dict[str, Ends], Tensor]:
    """The same from several nodes at once, such as the ends where an earlier call has stopped, with
    the bias that it found."""

    def ends(name: str) -> bool:
        return name in analysis.regions or (steps.stop is not None and steps.stop(name))

    degrees = out_degrees(analysis, starts, ends)
    pending: dict[str, Ends] = dict(starts)
    finished: dict[str, Ends] = {}
    queue = deque(name for name in starts if degrees[name] == 0)
    while queue:
        name = queue.popleft()
        current = pending.pop(name, None)
        if ends(name):
            if current is not None:
                finished[name] = current
            continue
        if current is not None:
            alone = not pending and not finished and name not in starts
            bias = _through(analysis, name, current, bias, alone, steps, pending)
            current = None  # nothing may keep coefficients while the next node is at work
            if not len(bias):
                return {}, bias
        for source in set(analysis.calls[name].names):
            degrees[source] -= 1
            if degrees[source] == 0:
                queue.append(source)
    return finished, bias


def _through(
    analysis: Analysis,
    name: str,
    current: Ends,
    bias: Tensor,
    alone: bool,
    steps: Steps,
    pending: dict[str, Ends],
) -> Tensor:
    """Propagate the coefficients of one node to its arguments, added to those that wait for other
    readers of these (``pending``); returns the bias. alone: no other node has coefficients."""
    rows = current.dense() if isinstance(current, Outer) else current
    if steps.visit is not None:
        plain = analysis.graph.nodes[name].layout == Layout()
        kept = steps.visit(name, rows, bias, alone and plain)
        if kept is not None:
            rows, bias = pick(rows, kept), bias.gather(0, kept)
            if not len(kept):
                return bias
    if steps.adjust is not None:
        rows, constant = steps.adjust(name, rows)
        bias = bias + constant
    found = _step(analysis, name, rows, bias.shape[1], steps.relaxation)
    for constant in _accumulate(analysis, analysis.calls[name].names, found, pending):
        bias = bias + constant
    return bias


def _accumulate(
    analysis: Analysis,
    names: Sequence[str],
    found: tuple[list[Ends], Tensor | float],
    pending: dict[str, Ends],
) -> Iterator[Tensor | float]:
    """Add the coefficients of a node's arguments to those that wait for other readers of these;
    yields the constants."""
    pulled, constant = found
    if not isinstance(constant, float) or constant != 0:
        yield constant
    for source, part in zip(names, pulled, strict=True):
        if analysis.interval(source).dtype.is_floating_point:
            pending[source] = _sum(pending[source], part) if source in pending else part
        else:  # a truth value has no slope: it ends here
            yield interval_rows(analysis, source, dense(part), analysis.interval(source))


def _sum(a: Ends, b: Ends) -> Rows:
    if isinstance(a, Window) and isinstance(b, Window):
        return a + b
    if isinstance(b, Window):
        a, b = b, a
    first, second = dense(a), dense(b)
    own = isinstance(a, Window) and a.places.moving  # nobody else has what was just made dense
    if own and not first.requires_grad and not second.requires_grad:
        return first.add_(second)
    return first + second


def dense(rows: Ends) -> Tensor:
    return rows if isinstance(rows, Tensor) else rows.dense()


def _step(
    analysis: Analysis, name: str, rows: Rows, samples: int, choose: Choose | None
) -> tuple[list[Ends], Tensor | float]:
    """F_i for one node: coefficients of its arguments, in their own layouts, and the constant per
    row and sample."""
    if isinstance(rows, Window) and not _stays_narrow(analysis, name, rows):
        rows = rows.dense()
    relaxation = analysis.relaxation(name) if choose is None else choose(name, rows)
    found = None
    if isinstance(rows, Window):
        found = _windows(relaxation, rows)
        rows = rows if found is not None else rows.dense()
    if found is None and analysis.graph.nodes[name].layout is None:
        found = _without_batch(relaxation, dense(rows), samples)
    if found is None:
        found = _with_batch(analysis, name, relaxation, dense(rows), samples)
    if choose is None:  # else an optimiser takes its own gradients, and lets go of what it kept
        keep(analysis, found[0])
    return found


def _stays_narrow(analysis: Analysis, name: str, rows: Window) -> bool:
    """Whether windows are worth keeping: beyond half of the node dense rows are cheaper."""
    nodes = analysis.graph.nodes
    plain = all(nodes[source].layout == Layout() for source in analysis.calls[name].names)
    return plain and rows.fraction <= MAX_WINDOW_FRACTION


def _windows(relaxation: Relaxation, rows: Window) -> tuple[list[Ends], Tensor | float] | None:
    found = relaxation.backward_window(rows)
    return None if found is None else (list(found[0]), found[1])


def _without_batch(
    relaxation: Relaxation, rows: Tensor, samples: int
) -> tuple[list[Ends], Tensor | float]:
    """A node without a batch, (rows, samples, *shape): every sample's copy is a row of its own."""
    count = rows.shape[0]
    parts, terms = relaxation.backward(rows.flatten(0, 1))

    def dot(part: Tensor, constant: Tensor | None) -> Tensor:
        inside = part if constant is None else product(part, constant)
        return inside.reshape(count * samples, -1).sum(1).reshape(count, samples)

    return [part.unflatten(0, (count, samples)) for part in parts], bias_of(terms, dot)


def _with_batch(
    analysis: Analysis, name: str, relaxation: Relaxation, rows: Tensor, samples: int
) -> tuple[list[Ends], Tensor | float]:
    """A node with a batch, (rows, *shape). Arguments without one (weights) keep the coefficients of
    each sample apart: (rows, samples, *shape)."""
    nodes, layout = analysis.graph.nodes, analysis.graph.nodes[name].layout
    assert layout is not None
    names = analysis.calls[name].names
    shared = {k for k, source in enumerate(names) if nodes[source].layout is None}
    closed = None
    if shared and layout == Layout():
        closed = relaxation.backward_per_sample(rows, shared)
    parts, terms = relaxation.backward(rows) if closed is None else closed

    def dot(part: Tensor, constant: Tensor | None) -> Tensor:
        if constant is None:
            return layout.sum(part, samples)
        return layout.dot(part, constant, samples)

    pulled: list[Ends] = list(parts)
    total = bias_of(terms, dot)
    if shared and closed is None:
        apart, _ = relaxation.backward(layout.separate(rows, samples).flatten(0, 1))
        for k in shared:
            pulled[k] = apart[k].unflatten(0, (rows.shape[0], samples))
    return pulled, total


def bias_of(
    terms: Sequence[tuple[Any, Tensor | None]], dot: Callable[[Any, Any], Tensor]
) -> Tensor | float:
    """The sum of the inner products per row and sample."""
    total: Tensor | float = 0.0
    for part, constant in terms:
        total = total + dot(part, constant)
    return total


def interval_rows(analysis: Analysis, name: str, rows: Rows, x: Interval) -> Tensor:
    """The least value of <rows, node> for a node in an interval: (rows, samples)."""
    layout = analysis.graph.nodes[name].layout
    if isinstance(rows, Window):
        rows = rows.zero_padded()
        kind = rows.values.dtype
        positive = rows.with_values(rows.values.clamp(min=0))
        negative = rows.with_values(rows.values.clamp(max=0))
        return positive.dot(x.lower.to(kind)) + negative.dot(x.upper.to(kind))
    if layout is not None:
        dot = lambda part, constant: layout.dot(part, constant.to(rows.dtype), analysis.samples)
        return dot(rows.clamp(min=0), x.lower) + dot(rows.clamp(max=0), x.upper)
    least = product(rows.clamp(min=0), x.lower.to(rows.dtype)) + product(
        rows.clamp(max=0), x.upper.to(rows.dtype)
    )
    return least.flatten(2).sum(2) if least.dim() > 2 else least


def concretize(analysis: Analysis, coefficients: Mapping[str, Ends], bias: Tensor) -> Tensor:
    """The minimum over the regions: (rows, samples). Where it is beyond all numbers above it says
    nothing: a sum that overflows may have been finite, or less than what is left out by
    rounding."""
    for name, rows in coefficients.items():
        bias = bias + analysis.regions[name].least(rows)
    return bias.masked_fill(torch.isposinf(bias), -torch.inf)
