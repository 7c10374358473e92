"""Where the samples of a batch lie in the nodes of a graph, for a batch size that is free and for
one that is fixed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from boundlab.capture import layouts
from boundlab.capture.values import MANY, Values
from boundlab.errors import CaptureError, MixedSamples
from boundlab.graph.graph import Graph, Ref
from boundlab.graph.layout import Layout

log = logging.getLogger("boundlab")

Examples = Mapping[str, Any]
"""Input of a graph -> example: a tensor, or whatever else the model takes."""


@dataclass(frozen=True, eq=False)
class Trial:
    """Values to run a graph with. ``state``: the path of a parameter or buffer -> tensor."""

    inputs: Examples
    state: Mapping[str, Tensor]

    def run(self, graph: Graph, twice: set[str]) -> dict[str, Any]:
        """The values of all nodes; every sample of the inputs in ``twice`` is there twice."""
        parameters = {name: self.state[path] for name, path in graph.parameters.items()}
        wide = {name: torch.cat([self.inputs[name]] * 2) for name in twice}
        with torch.no_grad():
            return graph.run({**parameters, **graph.constants, **self.inputs, **wide})


def find_batch(graph: Graph, values: Values, trial: Trial, batched: bool | None) -> Graph:
    """Put a layout on every node that carries samples, or leave the graph without a batch. batched:
    True if there must be one."""
    if not values.free:
        return _find_fixed_batch(graph, values, trial, batched)
    graph = replace(graph, counts_samples=values.counts_samples(graph))
    return _with_layouts(graph, values.with_samples(MANY), set(values.free), trial)


def _find_fixed_batch(graph: Graph, values: Values, trial: Trial, batched: bool | None) -> Graph:
    """The same where no size is free: the batch size is that of all inputs with two dimensions or
    more, if they agree."""
    samples = {
        name: len(value)
        for name, value in trial.inputs.items()
        if isinstance(value, Tensor) and value.dim() > 1
    }
    sizes = set(samples.values())
    if len(sizes) == 1:
        try:
            found = _with_layouts(graph, values.with_samples(*sizes), set(samples), trial)
            if _returns_samples(found):
                return found
        except MixedSamples:
            if batched:
                raise
        log.info("the model has no free batch size: its inputs count as one sample")
    elif batched:
        raise CaptureError(
            f"batched=True, but the inputs do not agree on a batch size: {sorted(sizes)}"
        )
    return graph


def _returns_samples(graph: Graph) -> bool:
    """Whether dimension 0 of every output counts samples."""
    outputs = [graph.nodes[o.name].layout for o in graph.outputs if isinstance(o, Ref)]
    return all(isinstance(layout, Layout) and layout.dim == 0 for layout in outputs)


def _with_layouts(graph: Graph, shapes: layouts.Shapes, batched: set[str], trial: Trial) -> Graph:
    found = layouts.assign(graph, shapes, batched)
    if layouts.vouched(found):
        # a batch of one cannot show that samples meet
        is_alone = {len(trial.inputs[name]) for name in batched} == {1}
        twice = batched if is_alone and shapes.samples == MANY else set()
        layouts.try_out(found, trial.run(found, twice))
    return found
