"""Backward mode (Algorithm 2): linear bounds of one node, pulled back to the sources.

Rows are one-sided: each is the coefficient vector of one quantity that is bounded from below. Rows
of a node with a batch have the node's own layout, (rows, *shape); those of a node without one (a
weight) keep a copy for each sample, (rows, samples, *shape), because different samples pull it in
different directions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""From a node and the rows that have come to it: its relaxation."""
Visit = Callable[[str, Rows, Tensor, bool], Tensor | None]
"""From a node, the rows that have come to it, the bias, and whether that is all there is: the rows
to keep (fewer rows, samples), or None for all."""


def propagate_backward(
    analysis: Analysis,
    target: str,
    rows: Rows,
    stop: Callable[[str], bool] | None = None,
    visit: Visit | None = None,
    relaxation: Choose | None = None,
) -> tuple[dict[str, Ends], Tensor]:
    """BoundBackward: ``<rows, target> >= sum over ends of <coefficients, end> + bias``.

    rows: (rows, *shape), or (rows, 1, *shape) for a target without a batch, or windows. The ends
    are the sources, and nodes where ``stop`` says so. visit: is shown the rows at each node, and
    says which of them go on where all of them are there. relaxation: of a node, if not the one that
    the analysis would choose. Returns the coefficients of the ends and the bias (rows, samples).
    """
    samples = analysis.samples if analysis.graph.nodes[target].layout is not None else 1
    like = rows.values if isinstance(rows, Window) else rows
    bias = torch.zeros(like.shape[0], samples, dtype=like.dtype, device=like.device)
    return propagate_from(analysis, {target: rows}, bias, stop, visit, relaxation)


def propagate_from(
    analysis: Analysis,
    starts: Mapping[str, Ends],
    bias: Tensor,
    stop: Callable[[str], bool] | None = None,
    visit: Visit | None = None,
    relaxation: Choose | None = None,
) -> tuple[dict[str, Ends], Tensor]:
    """The same from several nodes at once, such as the ends where an earlier call has stopped, with
    the bias that it found."""
    nodes, sources, samples = analysis.graph.nodes, analysis.regions, bias.shape[1]
    ends = (
        (lambda name: name in sources)
        if stop is None
        else (lambda name: name in sources or stop(name))
    )
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
        current = current.dense() if isinstance(current, Outer) else current
        names = analysis.calls[name].names
        if visit is not None and current is not None:
            alone = (
                not pending
                and not finished
                and nodes[name].layout == Layout()
                and name not in starts
            )
            kept = visit(name, current, bias, alone)
            if kept is not None:
                current, bias = pick(current, kept), bias.gather(0, kept)
                if not len(kept):
                    return {}, bias
        if current is not None:
            for constant in _accumulate(
                analysis, names, _step(analysis, name, current, samples, relaxation), pending
            ):
                bias = bias + constant
        for source in set(names):
            degrees[source] -= 1
            if degrees[source] == 0:
                queue.append(source)
    return finished, bias


def _accumulate(
    analysis: Analysis,
    names: Sequence[str],
    found: tuple[list[Ends], Tensor | float],
    pending: dict[str, Ends],
) -> Iterator[Tensor | float]:
    """Add the coefficients of a node's arguments to those that wait for other readers of these;
    yields the constants. A function of its own, so that no name here keeps coefficients in memory
    while the next node is at work."""
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
    a, b = (b, a) if isinstance(b, Window) else (a, b)
    first, second = dense(a), dense(b)
    # nobody else has it
    if (
        isinstance(a, Window)
        and a.places.moving
        and not first.requires_grad
        and not second.requires_grad
    ):
        return first.add_(second)
    return first + second


def dense(rows: Ends) -> Tensor:
    return rows if isinstance(rows, Tensor) else rows.dense()


def _step(
    analysis: Analysis, name: str, rows: Rows, samples: int, choose: Choose | None
) -> tuple[list[Ends], Tensor | float]:
    """F_i for one node: coefficients of its arguments, in their own layouts, and the constant per
    row and sample."""
    found = _pulled(analysis, name, rows, samples, choose)
    if choose is None:  # else a climb takes its own gradients, and lets go of what it kept
        keep(analysis, found[0])
    return found


def _pulled(
    analysis: Analysis, name: str, rows: Rows, samples: int, choose: Choose | None
) -> tuple[list[Ends], Tensor | float]:
    nodes = analysis.graph.nodes
    layout, names = nodes[name].layout, analysis.calls[name].names
    narrow = (
        isinstance(rows, Window)
        and rows.fraction <= MAX_WINDOW_FRACTION
        and all(nodes[source].layout == Layout() for source in names)
    )
    rows = rows if isinstance(rows, Window) and narrow else dense(rows)
    relaxation = analysis.relaxation(name) if choose is None else choose(name, rows)
    if isinstance(rows, Window):
        found = relaxation.backward_window(rows)
        if found is not None:
            return list(found[0]), found[1]
        rows = rows.dense()
    count = rows.shape[0]
    pulled: list[Ends]
    if layout is None:  # (rows, samples, *shape): every sample's copy is a row of its own
        parts, terms = relaxation.backward(rows.flatten(0, 1))
        inside = lambda part, constant: part if constant is None else product(part, constant)
        total = bias_of(
            terms,
            lambda part, constant: (
                inside(part, constant).reshape(count * samples, -1).sum(1).reshape(count, samples)
            ),
        )
        return [part.unflatten(0, (count, samples)) for part in parts], total
    # weights: what each sample asks of them stays apart
    shared = {k for k, source in enumerate(names) if nodes[source].layout is None}
    apart_and_terms = (
        relaxation.backward_per_sample(rows, shared) if shared and layout == Layout() else None
    )
    parts, terms = relaxation.backward(rows) if apart_and_terms is None else apart_and_terms
    pulled = list(parts)
    total = bias_of(
        terms,
        lambda part, constant: (
            layout.sum(part, samples) if constant is None else layout.dot(part, constant, samples)
        ),
    )
    if shared and apart_and_terms is None:
        apart, _ = relaxation.backward(layout.separate(rows, samples).flatten(0, 1))
        for k in shared:
            pulled[k] = apart[k].unflatten(0, (count, samples))
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
        positive, negative = (
            rows.with_values(rows.values.clamp(min=0)),
            rows.with_values(rows.values.clamp(max=0)),
        )
        return positive.dot(x.lower.to(rows.values.dtype)) + negative.dot(
            x.upper.to(rows.values.dtype)
        )
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
