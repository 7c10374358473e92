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

from boundlab.interval import Interval
from boundlab.methods.analysis import Analysis

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
            if pulled is not None and analysis.interval(source).dtype.is_floating_point:
                pending[source] = pending[source] + pulled[k] if source in pending else pulled[k]
        for source in set(call.names):
            degrees[source] -= 1
            if degrees[source] == 0:
                queue.append(source)
    return finished, bias


def _step(analysis: Analysis, name: str, rows: Tensor, samples: int) -> tuple[list[Tensor], Tensor]:
    """F_i for one node: coefficients of its arguments, in their own layouts, and the constant per row and sample."""
    nodes, relaxation = analysis.graph.nodes, analysis.relaxation(name)
    layout = nodes[name].layout
    count = rows.shape[0]
    if layout is None:  # (rows, samples, *shape): every sample's copy is a row of its own
        pulled, constant = relaxation.backward(rows.flatten(0, 1))
        total = 0 if constant is None else constant.reshape(count * samples, -1).sum(1).reshape(count, samples)
        return [part.unflatten(0, (count, samples)) for part in pulled], total  # type: ignore[return-value]
    pulled, constant = relaxation.backward(rows)
    total = 0 if constant is None else layout.sum(constant, samples)
    shared = [k for k, source in enumerate(analysis.calls[name].names) if nodes[source].layout is None]
    if shared:  # a weight: keep what each sample asks of it apart
        apart, _ = relaxation.backward(layout.separate(rows, samples).flatten(0, 1))
        for k in shared:
            pulled[k] = apart[k].unflatten(0, (count, samples))
    return pulled, total  # type: ignore[return-value]


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


def identity_rows(analysis: Analysis, target: str, start: int, stop: int) -> Tensor:
    """Rows that pick elements start ... stop - 1 of each sample of a node."""
    node, shape = analysis.graph.nodes[target], analysis.interval(target).shape
    like = analysis.interval(target).lower
    samples = analysis.samples if node.layout is not None else 1
    size = like.numel() // max(samples, 1)
    eye = torch.zeros(stop - start, size, dtype=like.dtype, device=like.device)
    eye[torch.arange(stop - start), torch.arange(start, stop)] = 1
    eye = eye[:, None].expand(-1, samples, -1)
    if node.layout is None:
        return eye.reshape(stop - start, 1, *shape)
    return node.layout.place(eye, shape)


def bound_node(analysis: Analysis, target: str, sides: str = "both") -> Interval:
    """Bounds of every element of a node by backward mode; a side that is not asked for is infinite."""
    like = analysis.interval(target).lower
    node = analysis.graph.nodes[target]
    samples = analysis.samples if node.layout is not None else 1
    size = like.numel() // max(samples, 1)
    step = chunk_size(analysis, target)
    lower, upper = [], []
    for start in range(0, size, step):
        rows = identity_rows(analysis, target, start, min(start + step, size))
        if sides != "upper":
            lower.append(lower_bounds(analysis, target, rows))
        if sides != "lower":
            upper.append(-lower_bounds(analysis, target, -rows))

    def assemble(parts: list[Tensor], missing: float) -> Tensor:
        if not parts:
            return torch.full_like(like, missing)
        flat = torch.cat(parts).T[None]  # (1, samples, size)
        return flat.reshape(like.shape) if node.layout is None else node.layout.place(flat, like.shape)[0]

    return Interval(assemble(lower, -torch.inf), assemble(upper, torch.inf))
