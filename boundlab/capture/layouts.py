"""Finding, for every node, where the samples of the batch lie, and refusing operators that mix samples.

Two sources of evidence: the symbolic batch size that ``torch.export`` leaves in the shapes says which dimension
carries the batch; a probe (run the graph, change one sample, see which elements change) says how it is merged
with other dimensions, and shows any operator through which one sample reaches another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from boundlab.batch import Layout, candidates
from boundlab.errors import MixedSamples
from boundlab.graph import Graph, Node
from boundlab.rules.registry import CUTS, aten, clean


class FixedSize(MixedSamples):
    """The graph computes only batches of the size it was captured with."""


UNTOUCHED = -1
"""Owner of an element that no probe changed."""


def assign(graph: Graph, values: Mapping[str, object], batched: set[str], samples: int, dims: Mapping[str, list[int]] | None) -> Graph:
    """The graph with a layout on every node that carries samples.

    values: one value for each independent node, with ``samples`` samples in dimension 0 of those in ``batched``.
    dims: node -> dimensions that can carry the batch (None: any).
    Raises MixedSamples, naming the node, where a value depends on more than one sample.
    """
    owners = _probe(graph, values, batched, samples)
    shapes = {name: tuple(owner.shape) for name, owner in owners.items()}
    layouts: dict[str, Layout | None] = {name: Layout() for name in batched}
    for node in graph.nodes.values():
        if node.name in layouts:
            continue
        owner = owners.get(node.name)
        inherited = [layouts[name] for name in node.inputs if layouts.get(name) is not None]
        if owner is None or not inherited:
            layouts[node.name] = None
            continue
        if node.op in CUTS:
            layouts[node.name] = None if node.op is clean or dims is None or not dims[node.name] else Layout(dims[node.name][0])
            continue
        shape = tuple(owner.shape)
        moved = _reshaped(node, layouts, shapes, shape, samples)
        if moved is not None and _fits(owner, moved, samples):
            layouts[node.name] = moved
            continue
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


RESHAPES = frozenset((aten.reshape.default, aten.flatten.using_ints, aten.unflatten.int, aten.squeeze.dim, aten.unsqueeze.default))


def _reshaped(
    node: Node, layouts: Mapping[str, Layout | None], shapes: Mapping[str, tuple[int, ...]], shape: tuple[int, ...], samples: int
) -> Layout | None:
    """Where a reshape puts the batch: the order of elements stays, so the distance between samples does."""
    source = node.inputs[0] if node.inputs else ""
    layout = layouts.get(source)
    if node.op not in RESHAPES or layout is None:
        return None
    distance = layout.inner * math.prod(shapes[source][layout.dim + 1 :])
    for dim in reversed(range(len(shape))):
        rest = math.prod(shape[dim + 1 :])
        if rest and distance % rest == 0 and (distance // rest * samples) and shape[dim] % (distance // rest * samples) == 0:
            inner = distance // rest
            return Layout(dim, shape[dim] // (inner * samples), inner)
    return None


def _fits(owner: Tensor, layout: Layout, samples: int) -> bool:
    expected = layout.owners(owner.shape, samples, owner.device)
    return bool(((owner == UNTOUCHED) | (owner == expected)).all())


def _probe(graph: Graph, values: Mapping[str, object], batched: set[str], samples: int) -> dict[str, Tensor]:
    """For every tensor node, which sample each element answers to; ``samples`` where it is more than one."""
    owners: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    cuts = {node.name for node in graph.nodes.values() if node.op is clean}
    for scale in (0.1, 1.0, 10.0):
        base = dict(values)
        for name in batched:
            base[name] = _stirred(values[name], scale, generator)
        before = _run(graph, base)
        frozen = {name: before[name] for name in cuts}
        for sample in sorted({0, 1, samples - 1} & set(range(samples))):
            changed = dict(base)
            for name in batched:
                tensor = changed[name].clone()  # type: ignore[attr-defined]
                tensor[sample] = _stirred(tensor, scale, generator)[sample]
                changed[name] = tensor
            after = _run(graph, {**changed, **frozen})
            for name, value in after.items():
                if isinstance(value, Tensor):
                    old = before[name]
                    if value.shape != old.shape:
                        raise MixedSamples(f"{graph.nodes[name]}: its shape depends on the values of the inputs, so it has no bounds elementwise")
                    moved = (value != old) & ~((value != value) & (old != old))
                    owner = owners.setdefault(name, torch.full(value.shape, UNTOUCHED, device=value.device))
                    taken = torch.where((owner == UNTOUCHED) | (owner == sample), sample, samples)
                    owners[name] = torch.where(moved, taken, owner)
    return owners


def _run(graph: Graph, values: Mapping[str, Any]) -> dict[str, Any]:
    """As Graph.run; a node that cannot be computed for another batch is refused by name."""
    env: dict[str, Any] = dict(values)
    for node in graph.nodes.values():
        if node.name not in env:
            try:
                env[node.name] = node.call(*node.arguments(env.__getitem__))
            except Exception as error:  # whatever an operator raises
                raise FixedSize(
                    f"{node} cannot be computed for another batch ({error}): an index or a shape in it depends on the size of the batch or on "
                    "values. If dimension 0 of the inputs does not count samples, capture the model with batched=False."
                ) from error
    return env


def _stirred(value: object, scale: float, generator: torch.Generator) -> Tensor:
    assert isinstance(value, Tensor)
    if value.is_floating_point():
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.dtype).to(value.device)
        return value.detach() + scale * noise
    if value.dtype == torch.bool or value.numel() == 0:
        return value
    low, high = int(value.min()), int(value.max())
    return torch.randint(low, high + 1, value.shape, generator=generator).to(value.dtype).to(value.device)
