"""What capturing a model gives: its graph, and what holds its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from boundlab.capture.torch_export import Function, Trace, export, traced_sizes
from boundlab.compat.ambient import undisturbed
from boundlab.compat.collector import without_collector
from boundlab.compat.private import pytree
from boundlab.errors import ArgumentError
from boundlab.graph.graph import Graph, Ref

Examples = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional arguments and keywords of a model, in any structure."""


@dataclass(frozen=True, eq=False)
class Captured:
    """A model as a graph. source: holds its parameters. inputs, outputs: the structures of its
    arguments and results. device: where it was captured, if its graph holds tensors or makes them
    there. training: whether a part of it was in train mode. traced: the batch sizes of its inputs
    with which it was traced."""

    source: nn.Module | ExportedProgram
    graph: Graph
    inputs: pytree.TreeSpec
    outputs: pytree.TreeSpec
    device: torch.device | None = None
    training: bool = False
    traced: tuple[int, ...] = ()

    @staticmethod
    def of(
        source: nn.Module | ExportedProgram,
        examples: Examples,
        batched: bool | None,
        own_size: bool = False,
        trace: Trace | None = None,
    ) -> Captured:
        """Capture a model on examples. own_size: for their batch size alone. trace: what is known
        of the model on these examples."""
        with undisturbed(of_model=True), without_collector():
            graph, inputs, outputs = export(source, *examples, batched, own_size, trace)
        device, training = None, is_training(source)
        if graph.knows_devices:
            tensors = [leaf for leaf in pytree.tree_leaves(examples) if has_dimensions(leaf)]
            device = tensors[0].device if tensors else None
        traced = traced_sizes(examples)
        return Captured(source, graph, inputs, outputs, device, training, traced)

    @property
    def targets(self) -> tuple[str, ...]:
        """The nodes of the outputs that are tensors."""
        return tuple(output.name for output in self.graph.outputs if isinstance(output, Ref))

    def only_output(self, what: str) -> str:
        """The node of the only output; an error for ``what`` if there are others."""
        if len(self.targets) != 1 or not self.outputs.is_leaf():
            raise ArgumentError(
                f"{what} needs a model with a single tensor output; this one returns {self.outputs}"
            )
        return self.targets[0]

    def leaves(self, examples: Examples) -> dict[str, Any]:
        """The entries of the inputs by their names in the graph."""
        found = pytree.tree_leaves(examples, is_leaf=lambda leaf: leaf is None)
        return dict(zip(self.graph.inputs, found, strict=True))

    def batch_sizes(self, leaves: Mapping[str, Any]) -> dict[str, int]:
        """The sizes of dimension 0 of the inputs in which it is free."""
        tensors = {name: leaves[name] for name in self.graph.sizes.symbols}
        return {name: t.shape[0] for name, t in tensors.items() if has_dimensions(t)}

    def serves(self, leaves: Mapping[str, Any]) -> bool:
        """Whether the graph is the model's for inputs of these shapes."""
        fixed = {name: shape for name, (shape, _, free) in self.graph.examples.items() if not free}
        fits = all(tuple(leaves[name].shape) == shape for name, shape in fixed.items())
        return fits and self.graph.sizes.broken(self.batch_sizes(leaves)) is None

    def module_names(self) -> dict[str, str]:
        """Module path -> the graph name of the last node that the module computes."""
        nodes = self.graph.nodes
        last = {node.origin.module: name for name, node in nodes.items() if node.origin.module}
        return last | dict(self.graph.modules)


def is_training(source: nn.Module | ExportedProgram) -> bool:
    """Whether any part of a model is in train mode. A callable that uses no module has no mode, and
    may be trained at any time."""
    if isinstance(source, ExportedProgram):
        return False
    parts = list(source.modules_used) if isinstance(source, Function) else [source]
    return not parts or any(module.training for part in parts for module in part.modules())


def has_dimensions(value: object) -> bool:
    """Whether it is a tensor with dimensions: one without may lie on the CPU whatever it meets."""
    return isinstance(value, Tensor) and value.dim() > 0
