"""One question as two, each for half of the samples: for batches of which not even one row of
coefficients fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundlab.compat.private import pytree
from boundlab.graph.graph import Graph, Ref
from boundlab.methods.state import BoundState
from boundlab.regions import Region
from boundlab.results import Bounds
from boundlab.rules.registry import clean


def can_be_taken_apart(graph: Graph) -> bool:
    """Whether samples can be asked for apart: a free batch size, nothing that counts them, no
    statistics of the batch."""
    free = all(graph.examples[n][2] for n in graph.inputs if graph.nodes[n].layout.batched)
    statistics = any(node.op is clean for node in graph.nodes.values())
    return graph.batched and free and not graph.counts_samples and not statistics


def can_be_halved(graph: Graph) -> bool:
    """Whether samples can be asked for apart, and the outputs begin with them."""
    return can_be_taken_apart(graph) and all(
        isinstance(output, Ref) and graph.nodes[output.name].layout.plain
        for output in graph.outputs
    )


def halves(
    graph: Graph, entries: Any, of_samples: Tensor | None, state: BoundState | None
) -> list[tuple[Any, Tensor | None, BoundState | None]] | None:
    """The inputs (any structure), a tensor that begins with the samples and a state, cut in two;
    None if that cannot be done."""
    leaves, tree = pytree.tree_flatten(entries)
    batched = [graph.nodes[name].layout.batched for name in graph.inputs]
    sizes = {
        len(leaf.centre if isinstance(leaf, Region) else leaf)
        for leaf, has in zip(leaves, batched, strict=True)
        if has
    }
    if len(sizes) != 1 or min(sizes) < 2 or not can_be_halved(graph):
        return None
    (samples,) = sizes
    if any(
        graph.sizes.broken(dict.fromkeys(graph.sizes.symbols, size))
        for size in (samples // 2, samples - samples // 2)
    ):
        return None
    found: list[tuple[Any, Tensor | None, BoundState | None]] = []
    for chosen in (slice(0, samples // 2), slice(samples // 2, samples)):
        parts = [
            _part(leaf, chosen) if has else leaf for leaf, has in zip(leaves, batched, strict=True)
        ]
        if any(part is None for part in parts):
            return None
        some = None if of_samples is None else of_samples[chosen]
        found.append((pytree.tree_unflatten(parts, tree), some, _state_of(state, chosen)))
    return found


def _state_of(state: BoundState | None, chosen: slice) -> BoundState | None:
    if state is None or state.samples is None:
        return state
    return state.take(torch.arange(chosen.start, chosen.stop))


def _part(leaf: Any, chosen: slice) -> Any:
    return leaf.samples(chosen) if isinstance(leaf, Region) else leaf[chosen]


def joined(results: Sequence[Any]) -> Any:
    """Results of consecutive parts of a batch as one."""
    is_result = lambda value: isinstance(value, (Bounds, Tensor))
    flat = [pytree.tree_flatten(result, is_leaf=is_result) for result in results]
    return pytree.tree_unflatten(
        [_cat(parts) for parts in zip(*[leaves for leaves, _ in flat], strict=True)], flat[0][1]
    )


def _cat(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Tensor):
        return torch.cat(list(parts))
    lower, upper = torch.cat([p.lower for p in parts]), torch.cat([p.upper for p in parts])
    states = [part.state for part in parts if part.state is not None]
    if len(states) < len(parts):
        return Bounds(lower, upper)
    state = BoundState.join(states)
    return Bounds(lower, upper, slopes=state.alphas, state=state)
