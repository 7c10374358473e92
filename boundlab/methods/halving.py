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
    samples_first = all(
        isinstance(output, Ref) and graph.nodes[output.name].layout.plain
        for output in graph.outputs
    )
    return samples_first and can_be_taken_apart(graph)


Half = tuple[Any, Tensor | None, BoundState | None]
"""Inputs of any structure, a tensor that begins with the samples, and a state."""


def halves(
    graph: Graph, entries: object, of_samples: Tensor | None, state: BoundState | None
) -> list[Half] | None:
    """The inputs (any structure), a tensor that begins with the samples and a state, cut in two;
    None if that cannot be done."""
    leaves, tree = pytree.tree_flatten(entries)
    assert len(leaves) == len(graph.inputs)
    batched = [k for k, name in enumerate(graph.inputs) if graph.nodes[name].layout.batched]
    sizes = {_samples(leaves[k]) for k in batched}
    if len(sizes) != 1 or not can_be_halved(graph):
        return None
    (samples,) = sizes
    middle = samples // 2
    if not middle or _breaks(graph, middle) or _breaks(graph, samples - middle):
        return None
    found: list[Half] = []
    for chosen in (slice(0, middle), slice(middle, samples)):
        parts = list(leaves)
        for k in batched:
            parts[k] = _part(leaves[k], chosen)
            if parts[k] is None:
                return None
        some = None if of_samples is None else of_samples[chosen]
        found.append((pytree.tree_unflatten(parts, tree), some, _state_of(state, chosen)))
    return found


def _samples(leaf: Region | Tensor) -> int:
    if isinstance(leaf, Region):
        return len(leaf.centre)
    return len(leaf)


def _part(leaf: Region | Tensor, chosen: slice) -> Region | Tensor | None:
    """Some samples of an input; None if a region cannot be taken apart."""
    if isinstance(leaf, Region):
        return leaf.samples(chosen)
    return leaf[chosen]


def _breaks(graph: Graph, samples: int) -> bool:
    """Whether the graph may compute something else than the model for so many samples."""
    sizes = dict.fromkeys(graph.sizes.symbols, samples)
    return graph.sizes.broken(sizes) is not None


def _state_of(state: BoundState | None, chosen: slice) -> BoundState | None:
    if state is None or state.samples is None:
        return state
    return state.take(torch.arange(chosen.start, chosen.stop))


def joined(results: Sequence[object]) -> Any:
    """Results of consecutive parts of a batch as one."""
    is_result = lambda value: isinstance(value, (Bounds, Tensor))
    flat = [pytree.tree_flatten(result, is_leaf=is_result) for result in results]
    _, tree = flat[0]
    by_leaf = zip(*[leaves for leaves, _ in flat], strict=True)
    return pytree.tree_unflatten([_cat(parts) for parts in by_leaf], tree)


def _cat(parts: Sequence[Any]) -> Bounds | Tensor:
    if isinstance(parts[0], Tensor):
        return torch.cat(list(parts))
    lower, upper = torch.cat([p.lower for p in parts]), torch.cat([p.upper for p in parts])
    states = [part.state for part in parts if part.state is not None]
    if len(states) < len(parts):
        return Bounds(lower, upper)
    state = BoundState.join(states)
    return Bounds(lower, upper, slopes=state.alphas, state=state)
