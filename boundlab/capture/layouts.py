"""Finding, for every node, where the samples of the batch lie, and refusing operators that let
samples meet.

This is decided by structure: the facts of ``boundlab.rules.structure`` lead from the layouts of a
node's arguments to its own, for every size of the batch and all values. No values are looked at,
with one exception: of an operator that only a user's registration vouches for, a trial run may show
that the registration is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from boundlab.errors import MixedSamples
from boundlab.graph.graph import Graph, Node, Ref
from boundlab.graph.layout import SHARED, Layout
from boundlab.rules.registry import aten
from boundlab.rules.structure import (
    Meets,
    Site,
    Structure,
    Unknown,
    find_structure,
    reshape,
    samples_first,
)

CURE = "If dimension 0 of the inputs does not count samples, capture the model with batched=False."
EXPERTS = (
    "Experts that sort the tokens of all samples together can be run token by token instead (in "
    "transformers: experts_implementation='batched_mm' in the configuration)."
)
SORTING = (aten.sort, aten.argsort)


@dataclass(frozen=True, eq=False)
class Shapes:
    """What the front end knows of the values of nodes: ``tensors``: their shapes, with ``samples``
    in the place of the batch size; ``numbers``: integers that are computed from shapes, as far as
    they are multiples of the batch size or no functions of it; ``masks``: the tensors of truth
    values; ``odd``: the tensors of which a size depends on the batch size in another way."""

    samples: int
    tensors: Mapping[str, tuple[int, ...]]
    numbers: Mapping[str, int] = field(default_factory=dict)
    masks: frozenset[str] = frozenset()
    odd: frozenset[str] = frozenset()


def assign(graph: Graph, shapes: Shapes, batched: set[str]) -> Graph:
    """The graph with a layout on every node that carries samples, in dimension 0 of the inputs in
    ``batched``.

    Raises MixedSamples, naming the node, where a value depends on more than one sample. Nodes of
    which nothing is known are noted in the graph: only questions that need them are refused.
    """
    layouts: dict[str, Layout | None] = {name: Layout() for name in batched}
    own: dict[str, Layout] = {}
    unknown: dict[str, str] = {}
    for node in graph.nodes.values():
        if node.name in layouts or node.op is None or node.name not in shapes.tensors:
            layouts.setdefault(node.name, None)
            continue
        site = Site(
            node, shapes.samples, shapes.tensors, layouts, shapes.numbers, shapes.masks, own
        )
        doubts = [unknown[name] for name in node.inputs if name in unknown]
        if doubts:
            unknown[node.name] = doubts[0]
            layouts[node.name] = None
        else:
            layouts[node.name] = _layout(site, shapes, unknown)
        place = _own_places(site)
        if place is not None:
            own[node.name] = place
    nodes = {
        name: replace(node, layout=layouts[name] or SHARED) for name, node in graph.nodes.items()
    }
    return replace(graph, nodes=nodes, batched=True, unknown=unknown)


def _layout(site: Site, shapes: Shapes, unknown: dict[str, str]) -> Layout | None:
    """The layout of a node from those of its arguments; what is not known is noted in
    ``unknown``."""
    node = site.node
    if not site.tensors:
        return _of_constant(site)
    if all(site.layouts.get(name) is None for name in site.tensors):
        return None
    if node.name in shapes.odd:
        raise MixedSamples(f"{node}: its shape is not a multiple of the batch size. {CURE}")
    try:
        return find_structure(node)(site)
    except Unknown as doubt:
        unknown[node.name] = f"{node}: {doubt}. {CURE}"
        return None
    except Meets as reason:
        raise MixedSamples(
            f"{node}: its value for one sample depends on other samples of the batch, so there "
            f"are no bounds per sample: {reason}. {_cure(node)}"
        ) from None


def _cure(node: Node) -> str:
    """What to do about samples that meet in a node."""
    if node.packet in SORTING:
        return f"{EXPERTS} {CURE}"
    return CURE


def _of_constant(site: Site) -> Layout | None:
    """Of a tensor that is made from shapes alone: the dimension that is as large as the batch."""
    dims = [dim for dim, size in enumerate(site.out) if size == site.samples]
    if len(dims) != 1 or not any(name in site.numbers for name in site.node.inputs):
        return None
    return Layout(dims[0])


KEEPING = (aten._to_copy.default, aten.expand.default)
"""Operators that keep the values of a tensor of whole numbers; casts that do not have another
name."""
COUNTING = (aten.arange.default, aten.arange.start, aten.arange.start_step)


def _own_places(site: Site) -> Layout | None:
    """Where a tensor holds each sample's own place in the batch: ``arange(batch size)``, and the
    same in another shape or type."""
    if site.node.op in COUNTING:
        return _counted_places(site)
    if site.node.args and isinstance(site.node.args[0], Ref):
        return _kept_places(site, site.node.args[0].name)
    return None


def _counted_places(site: Site) -> Layout | None:
    """Of an ``arange``: it must count from 0 to the batch size in steps of 1."""
    op = site.node.op
    from_zero = op is aten.arange.default or site["start"] == 0
    by_one = op is not aten.arange.start_step or site["step"] == 1
    if from_zero and by_one and site.out == (site.samples,):
        return Layout()
    return None


def _kept_places(site: Site, source: str) -> Layout | None:
    """Of an operator that only moves the places that its first argument holds."""
    if source not in site.own:
        return None
    try:
        structure = find_structure(site.node)
        if structure is reshape or site.node.op in KEEPING:
            return structure(replace(site, layouts={source: site.own[source]}))
    except (Meets, Unknown):
        pass
    return None


# -- trials ----------------------------------------------------------------------------------------


def vouched(graph: Graph) -> list[Node]:
    """The nodes with samples whose operator has no fact of its own, but a registered rule."""
    known = [
        node
        for node in graph.nodes.values()
        if node.op is not None and node.layout.batched and node.name not in graph.unknown
    ]
    return [node for node in known if _structure_of(node) is samples_first]


def _structure_of(node: Node) -> Structure | None:
    try:
        return find_structure(node)
    except Unknown:
        return None


def try_out(graph: Graph, values: Mapping[str, Any]) -> None:
    """Refuse operators that a registration vouches for if other samples change when one does.
    values: of all nodes, for a batch."""
    generator = torch.Generator().manual_seed(0)
    for node in vouched(graph):
        read = [
            name
            for name in node.inputs
            if graph.nodes[name].layout.batched and isinstance(values[name], Tensor)
        ]
        for scale in (0.1, 1.0, 10.0):
            if _samples_meet(node, values, read, _Noise(scale, generator)):
                raise MixedSamples(
                    f"{node}: its value for one sample depends on other samples of the batch. "
                    f"{CURE}"
                )


@dataclass(frozen=True, eq=False)
class _Noise:
    scale: float
    generator: torch.Generator

    def on(self, value: Tensor) -> Tensor:
        """A tensor of real numbers with noise; any other as it is."""
        if not value.is_floating_point():
            return value
        noise = torch.randn(value.shape, generator=self.generator, dtype=torch.float64)
        return value.detach() + self.scale * noise.to(value)


def _samples_meet(node: Node, values: Mapping[str, Any], read: list[str], noise: _Noise) -> bool:
    """Whether the value of a node for one sample changes when another sample of the nodes in
    ``read`` does."""
    base = {**values, **{name: noise.on(values[name]) for name in read}}
    before = node.call(*node.arguments(base.__getitem__))
    for sample in range(len(before)):
        changed = {name: base[name].clone() for name in read}
        for value in changed.values():
            value[sample] = noise.on(value[sample])
        after = node.call(*node.arguments({**base, **changed}.__getitem__))
        both_nan = (after != after) & (before != before)
        moved = (after != before) & ~both_nan
        moved[sample] = False
        if bool(moved.any()):
            return True
    return False
