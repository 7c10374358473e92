"""Backward mode (Algorithm 2): linear bounds of one node, pulled back to the sources.

Rows are one-sided: each is the coefficient vector of one quantity that is bounded from below. Rows of a node with a
batch have the node's own layout, (rows, *shape); those of a node without one (a weight) keep a copy for each sample,
(rows, samples, *shape), because different samples pull it in different directions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from boundlab.batch import product
from boundlab.interval import Interval
from boundlab.methods.analysis import Analysis
from boundlab.relaxation import Terms

BUDGET = 1 << 26
"""How many numbers the rows of one node may hold at once; longer stacks of rows are cut into chunks."""


def out_degrees(analysis: Analysis, target: str, stop: Callable[[str], bool]) -> dict[str, int]:
    """GetOutDegree: for each node that ``target`` depends on, how many nodes between them read it."""
    degrees: dict[str, int] = {target: 0}
    queue = deque([target])
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


def pull_back(analysis: Analysis, target: str, rows: Tensor, stop: Callable[[str], bool] | None = None) -> tuple[dict[str, Tensor], Tensor]:
    """BoundBackward: ``<rows, target> >= sum over ends of <coefficients, end> + bias``.

    rows: (rows, *shape), or (rows, 1, *shape) for a target without a batch. The ends are the sources, and nodes where
    ``stop`` says so. Returns their coefficients and the bias (rows, samples).
    """
    nodes, sources = analysis.graph.nodes, analysis.regions
    ends = (lambda name: name in sources) if stop is None else (lambda name: name in sources or stop(name))
    samples = analysis.samples if nodes[target].layout is not None else 1
    degrees = out_degrees(analysis, target, ends)
    pending: dict[str, Tensor] = {target: rows}
    finished: dict[str, Tensor] = {}
    bias = torch.zeros(rows.shape[0], samples, dtype=rows.dtype, device=rows.device)
    queue = deque([target])
    while queue:
        name = queue.popleft()
        current = pending.pop(name, None)
        if ends(name):
            if current is not None:
                finished[name] = current
            continue
        call = analysis.calls[name]
        pulled: list[Tensor] | None = None
        if current is not None:
            pulled, constant = _step(analysis, name, current, samples)
            bias = bias + constant
        for k, source in enumerate(call.names):
            if pulled is None:
                continue
            if analysis.interval(source).dtype.is_floating_point:
                pending[source] = pending[source] + pulled[k] if source in pending else pulled[k]
            else:  # a truth value has no slope: it ends here
                bias = bias + interval_rows(analysis, source, pulled[k], analysis.interval(source))
        for source in set(call.names):
            degrees[source] -= 1
            if degrees[source] == 0:
                queue.append(source)
    return finished, bias


def _step(analysis: Analysis, name: str, rows: Tensor, samples: int) -> tuple[list[Tensor], Tensor | float]:
    """F_i for one node: coefficients of its arguments, in their own layouts, and the constant per row and sample."""
    nodes, relaxation = analysis.graph.nodes, analysis.relaxation(name)
    layout = nodes[name].layout
    count = rows.shape[0]
    if layout is None:  # (rows, samples, *shape): every sample's copy is a row of its own
        pulled, terms = relaxation.backward(rows.flatten(0, 1))
        total = bias_of(terms, lambda part, constant: product(part, constant).reshape(count * samples, -1).sum(1).reshape(count, samples))
        return [part.unflatten(0, (count, samples)) for part in pulled], total
    pulled, terms = relaxation.backward(rows)
    total = bias_of(terms, lambda part, constant: layout.dot(part, constant, samples))
    shared = [k for k, source in enumerate(analysis.calls[name].names) if nodes[source].layout is None]
    if shared:  # a weight: keep what each sample asks of it apart
        apart, _ = relaxation.backward(layout.separate(rows, samples).flatten(0, 1))
        for k in shared:
            pulled[k] = apart[k].unflatten(0, (count, samples))
    return pulled, total


def bias_of(terms: Terms, dot: Callable[[Tensor, Tensor], Tensor]) -> Tensor | float:
    """The sum of the inner products per row and sample."""
    total: Tensor | float = 0.0
    for part, constant in terms:
        total = total + dot(part, constant)
    return total


def interval_rows(analysis: Analysis, name: str, rows: Tensor, x: Interval) -> Tensor:
    """The least value of <rows, node> for a node in an interval: (rows, samples)."""
    layout = analysis.graph.nodes[name].layout
    least = product(rows.clamp(min=0), x.lower.to(rows.dtype)) + product(rows.clamp(max=0), x.upper.to(rows.dtype))
    if layout is not None:
        return layout.sum(least, analysis.samples)
    return least.flatten(2).sum(2) if least.dim() > 2 else least


def concretize(analysis: Analysis, coefficients: dict[str, Tensor], bias: Tensor) -> Tensor:
    """The minimum over the regions: (rows, samples)."""
    for name, rows in coefficients.items():
        bias = bias + analysis.regions[name].minimum(rows)
    return bias


def lower_bounds(analysis: Analysis, target: str, rows: Tensor) -> Tensor:
    """Lower bounds of <rows, target>: (rows, samples)."""
    return concretize(analysis, *pull_back(analysis, target, rows))


def chunk_size(analysis: Analysis, target: str) -> int:
    """How many rows of ``target`` fit the budget at its largest ancestor."""
    sizes = [analysis.interval(name).lower.numel() for name in analysis.graph.ancestors((target,)) if name in analysis.variable]
    return max(1, BUDGET // max(1, *sizes, 1))


def unit_rows(analysis: Analysis, target: str, chosen: Tensor) -> Tensor:
    """Rows that pick one element of each sample of a node: chosen (rows, samples) -> (rows, *shape).

    Different samples may pick different elements in the same row.
    """
    node, like = analysis.graph.nodes[target], analysis.interval(target).lower
    count, samples = chosen.shape
    size = like.numel() // max(samples, 1)
    rows = torch.zeros(count, samples, size, dtype=like.dtype, device=like.device).scatter_(2, chosen.unsqueeze(2), 1)
    return rows.reshape(count, 1, *like.shape) if node.layout is None else node.layout.place(rows, like.shape)


def identity_rows(analysis: Analysis, target: str) -> Tensor:
    """Rows that pick every element of each sample of a node, in order."""
    node, like = analysis.graph.nodes[target], analysis.interval(target).lower
    samples = analysis.samples if node.layout is not None else 1
    every = torch.arange(like.numel() // max(samples, 1), device=like.device)
    return unit_rows(analysis, target, every[:, None].expand(-1, samples))


def bound_node(analysis: Analysis, target: str, sides: str = "both", wanted: Tensor | None = None) -> Interval:
    """Bounds of the elements of a node by backward mode; infinite where they are not asked for.

    wanted: a mask in the shape of the node; None asks for every element.
    """
    like = analysis.interval(target).lower
    node = analysis.graph.nodes[target]
    samples = analysis.samples if node.layout is not None else 1
    by_sample = (lambda t: t.reshape(samples, -1)) if node.layout is None else (lambda t: node.layout.samples_first(t[None], samples)[0])
    mask = by_sample(torch.ones_like(like, dtype=torch.bool) if wanted is None else wanted)  # (samples, size)
    count = int(mask.sum(1).max()) if mask.numel() else 0
    # Each sample's wanted elements first; rows of samples that want fewer are filled with others.
    order = mask.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count].T  # (rows, samples)
    found = {}
    for side, sign in (("lower", 1), ("upper", -1)):
        flat = torch.full(mask.shape, -sign * torch.inf, dtype=like.dtype, device=like.device)
        if sides in ("both", side) and count:
            parts = [
                sign * lower_bounds(analysis, target, sign * unit_rows(analysis, target, part)) for part in order.split(chunk_size(analysis, target))
            ]
            # a sample must not gain by what another one in the batch needs: keep only what was asked for
            flat = torch.where(mask, flat.scatter(1, order.T, torch.cat(parts).T.to(like.dtype)), flat)
        found[side] = flat.reshape(like.shape) if node.layout is None else node.layout.place(flat[None], like.shape)[0]
    return Interval(found["lower"], found["upper"])
