"""Finding, for every node, where the samples of the batch lie, and refusing operators that mix samples.

Two sources of evidence: the symbolic batch size that ``torch.export`` leaves in the shapes says which dimension
carries the batch; a probe (run the graph, change one sample, see which elements change) says how it is merged
with other dimensions, and shows any operator through which one sample reaches another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from boundlab.batch import Layout, candidates
from boundlab.errors import MixedSamples
from boundlab.graph import Graph

UNTOUCHED = -1
"""Owner of an element that no probe changed."""


def assign(graph: Graph, values: Mapping[str, object], batched: set[str], samples: int, dims: Mapping[str, list[int]] | None) -> Graph:
    """The graph with a layout on every node that carries samples.

    values: one value for each independent node, with ``samples`` samples in dimension 0 of those in ``batched``.
    dims: node -> dimensions that can carry the batch (None: any).
    Raises MixedSamples, naming the node, where a value depends on more than one sample.
    """
    owners = _probe(graph, values, batched, samples)
    layouts: dict[str, Layout | None] = {name: Layout() for name in batched}
    for node in graph.nodes.values():
        if node.name in layouts:
            continue
        owner = owners.get(node.name)
        inherited = [layouts[name] for name in node.inputs if layouts.get(name) is not None]
        if owner is None or not inherited:
            layouts[node.name] = None
            continue
        if node.name in _unmixed(graph) or ((owner == UNTOUCHED).all() and dims is not None and not dims[node.name]):
            layouts[node.name] = None
            continue
        shape = tuple(owner.shape)
        possible = candidates(shape, samples, list(range(len(shape))) if dims is None else dims[node.name])
        fitting = [layout for layout in possible if _fits(owner, layout, samples)]
        if not fitting:
            raise MixedSamples(
                f"{node}: its value for one sample depends on other samples of the batch, so there are no bounds per sample. "
                "If dimension 0 of the inputs does not count samples, capture the model with batched=False."
            )
        plain = [layout for layout in fitting if layout.outer == layout.inner == 1 and dims is not None]
        kept = [layout for layout in fitting if layout in inherited]
        layouts[node.name] = (plain or kept or fitting)[0]
        if len(fitting) > 1 and not plain and not kept:
            raise MixedSamples(f"{node}: could not tell where the samples lie in its value of shape {shape}; capture with batched=False.")
    nodes = {name: replace(node, layout=layouts[name]) for name, node in graph.nodes.items()}
    return replace(graph, nodes=nodes, batched=True)


def _unmixed(graph: Graph) -> set[str]:
    """Nodes whose dependence on other samples is by definition not counted: statistics of the clean batch."""
    from boundlab.rules.registry import CUTS

    return {node.name for node in graph.nodes.values() if node.op in CUTS}


def _fits(owner: Tensor, layout: Layout, samples: int) -> bool:
    expected = layout.owners(owner.shape, samples)
    return bool(((owner == UNTOUCHED) | (owner == expected)).all())


def _probe(graph: Graph, values: Mapping[str, object], batched: set[str], samples: int) -> dict[str, Tensor]:
    """For every tensor node, which sample each element answers to; ``samples`` where it is more than one."""
    owners: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    cuts = _unmixed(graph)
    for scale in (0.1, 1.0, 10.0):
        base = dict(values)
        for name in batched:
            base[name] = _stirred(values[name], scale, generator)
        before = graph.run(base)
        frozen = {name: before[name] for name in cuts}
        for sample in sorted({0, 1, samples - 1} & set(range(samples))):
            changed = dict(base)
            for name in batched:
                tensor = changed[name].clone()  # type: ignore[attr-defined]
                tensor[sample] = _stirred(tensor, scale, generator)[sample]
                changed[name] = tensor
            after = graph.run({**changed, **frozen})
            for name, value in after.items():
                if isinstance(value, Tensor):
                    old = before[name]
                    moved = (value != old) & ~((value != value) & (old != old))
                    owner = owners.setdefault(name, torch.full(value.shape, UNTOUCHED))
                    taken = torch.where((owner == UNTOUCHED) | (owner == sample), sample, samples)
                    owners[name] = torch.where(moved, taken, owner)
    return owners


def _stirred(value: object, scale: float, generator: torch.Generator) -> Tensor:
    assert isinstance(value, Tensor)
    if value.is_floating_point():
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.dtype).to(value.device)
        return value.detach() + scale * noise
    if value.dtype == torch.bool or value.numel() == 0:
        return value
    low, high = int(value.min()), int(value.max())
    return torch.randint(low, high + 1, value.shape, generator=generator).to(value.dtype).to(value.device)
