"""What is attacked: a model as a function of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from boundlab.compat.private import pytree
from boundlab.errors import ArgumentError
from boundlab.net import Net
from boundlab.onnx import OnnxModel

Model = Net | nn.Module | Callable[..., Any]


class Target:
    """A model, itself: points (points, *shape) to flat outputs (points, outputs), in its own type
    and on its own device. shape: of one point as the model takes it, None if it takes what comes.
    """

    def __init__(self, model: Model, like: Tensor, alone: bool = False) -> None:
        """like: an input, whose type and device are taken if the model does not tell. alone: the
        model takes one point at a time, without a dimension for samples."""
        self.alone = alone
        self.shape: tuple[int, ...] | None = None
        self.dtype, self.device = like.dtype, like.device
        self.call: Callable[..., Any]
        if isinstance(model, Net):
            self._read(model)
        elif callable(model):
            self.call = model
        else:
            raise ArgumentError(f"attack takes a model or a net, not {type(model).__name__}")
        if isinstance(self.call, OnnxModel):
            self.dtype = self.call.inputs[0].dtype
        first = next(iter(_tensors(self.call)), None)
        if first is not None:
            self.dtype, self.device = first.dtype, first.device

    def _read(self, net: Net) -> None:
        """The model behind a net, and the shape of its only input."""
        graph = net.graph
        if len(graph.inputs) != 1:
            raise ArgumentError(
                f"attack moves one input; this model takes {', '.join(graph.inputs)}: give a "
                "function of the one that moves"
            )
        shape, dtype, _ = graph.examples[graph.inputs[0]]
        self.shape, self.dtype = shape if self.alone else shape[1:], dtype
        source = net.source
        self.call = source.module() if isinstance(source, ExportedProgram) else source

    def __call__(self, x: Tensor) -> Tensor:
        """Flat outputs of points; several outputs stand one behind the other."""
        given = x.to(self.device, self.dtype)
        fits = self.shape is None or tuple(given.shape[1:]) == self.shape
        if not fits:
            assert self.shape is not None
            if math.prod(given.shape[1:]) != math.prod(self.shape):
                raise ArgumentError(
                    f"the region has {math.prod(given.shape[1:])} elements, and the model takes "
                    f"inputs of shape {self.shape}"
                )
            given = given.reshape(-1, *self.shape)
        if self.alone:
            return torch.cat([_flat(self.call(one), 1) for one in given])
        return _flat(self.call(given), len(x))


def _flat(outputs: Any, points: int) -> Tensor:
    """All tensors of outputs, one behind the other: (points, elements)."""
    leaves = pytree.tree_leaves(outputs)
    found = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not points:
        return torch.cat([leaf.flatten(1) for leaf in found], 1)
    flat = [leaf.reshape(points, -1) for leaf in found]
    return flat[0] if len(flat) == 1 else torch.cat(flat, 1)


def _tensors(model: Any) -> Iterator[Tensor]:
    """Parameters and buffers in floating point."""
    if not isinstance(model, nn.Module):
        return
    for one in (*model.parameters(), *model.buffers()):
        if one.is_floating_point():
            yield one
