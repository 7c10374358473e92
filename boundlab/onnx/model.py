"""A network of an ONNX file as a module."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import torch
from torch import Tensor, nn

from boundlab.errors import ArgumentError, BoundlabError
from boundlab.onnx import rows as _rows  # fills the table
from boundlab.onnx.batching import holds_samples, sample_shape, trial_inputs, with_free_batch
from boundlab.onnx.checking import check_against_onnxruntime
from boundlab.onnx.folding import fold
from boundlab.onnx.layers import with_layers
from boundlab.onnx.network import Network, Ref, Value
from boundlab.onnx.reading import opset_of, read_model
from boundlab.onnx.rows.normalisation import batch_normalization

Outputs = Tensor | dict[str, Tensor]
DEEPEST = 20
"""How many dots the name of a constant may have for it to lie in a module in a module."""


def load_onnx(
    path: str | Path,
    check: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> OnnxModel:
    """Read a network from an ONNX file, packed (``.gz``) or not.

    check: compare its outputs with those of onnxruntime, which must be installed, on random inputs.
    shapes: of inputs that leave more sizes free than the first, by name.
    """
    path = Path(path)
    try:
        proto = read_model(path)
        network = fold(proto.graph, opset_of(proto), path.parent, shapes or {})
        names = tuple(one.name for one in proto.graph.output)
        found = OnnxModel(with_layers(network), names).eval()
    except BoundlabError as error:
        raise type(error)(f"{path}: {error}") from None
    if check:
        check_against_onnxruntime(found, path)
    return found


class OnnxModel(nn.Module):
    """The network of an ONNX file.

    It takes its inputs in the order of the file, each with samples in front, (samples, *shape) or
    flat, (samples, elements), and returns a tensor (samples, ...), or a dict by name if there are
    several outputs. Each sample is treated as the file's network treats a batch of it alone.
    Weights are parameters under their names in the file; matrices that values are multiplied with
    are as nn.Linear has them, (out, in).
    """

    def __init__(self, network: Network, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.inputs = network.inputs
        self.outputs = outputs
        self._strips = [_has_sample_dimension(network, name) for name in network.outputs]
        freed = with_free_batch(network)
        self._mapped = freed is None
        if freed is not None:
            network = freed
        self._network = replace(network, constants={}, meta={})
        self._dead = network.last_reads()
        self._paths: dict[str, str] = {}
        trained = network.trainable - _statistics(network)
        for name, value in network.constants.items():
            self._paths[name] = self._hold(name, value, name in trained)
        self._try()

    @torch.no_grad()
    def _try(self) -> None:
        """An error if the network does not even run: an index is out of range, or a step cannot be
        mapped. Whole numbers have a meaning, so that random ones tell nothing."""
        if not self.inputs or not all(one.dtype.is_floating_point for one in self.inputs):
            return
        try:
            self(*self.example())
        except Exception as error:  # torch complains in many types
            text = " ".join(str(error).split())[:300]
            raise ArgumentError(f"it fails on random inputs: {text}") from None

    def _hold(self, name: str, value: Tensor, trained: bool) -> str:
        """Keep a constant as a parameter or a buffer; its path among the modules."""
        path = [re.sub(r"\W", "_", part) for part in name.split(".") if part] or ["constant"]
        path = path if len(path) <= DEEPEST else ["_".join(path)]
        holder: nn.Module = self
        for place, folder in enumerate(path[:-1]):
            child = getattr(holder, folder, None)
            if not isinstance(child, nn.Module):
                folder = path[place] = _unused(holder, folder, len(self._paths))
                child = nn.Module()
                holder.add_module(folder, child)
            holder = child
        value = value.contiguous()
        path[-1] = _unused(holder, path[-1], len(self._paths))
        if trained:
            holder.register_parameter(path[-1], nn.Parameter(value))
        else:
            holder.register_buffer(path[-1], value)
        return ".".join(path)

    def example(self, samples: int = 2) -> tuple[Tensor, ...]:
        """Random inputs of this many samples."""
        return tuple(trial_inputs(self.inputs, samples))

    def forward(self, *inputs: Tensor) -> Outputs:
        if len(inputs) != len(self.inputs):
            names = ", ".join(one.name for one in self.inputs)
            raise ArgumentError(f"the network takes {names}; {len(inputs)} inputs were given")
        if not inputs:
            raise ArgumentError("the network has no inputs: its outputs are constants")
        values = [_as_samples(x, of) for x, of in zip(inputs, self.inputs, strict=True)]
        if self._mapped:
            found = torch.vmap(self._one)(*values)
        else:
            found = self._run(values)
        if len(self.outputs) == 1:
            return found[0]
        return dict(zip(self.outputs, found, strict=True))

    def _one(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Outputs of one sample, without the dimension for samples where the file has one."""
        values = [
            x.unsqueeze(0) if holds_samples(of) else x
            for x, of in zip(inputs, self.inputs, strict=True)
        ]
        found = self._run(values)
        return tuple(
            one.squeeze(0) if strip else one for one, strip in zip(found, self._strips, strict=True)
        )

    def _run(self, inputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
        """The steps one after the other; values that nothing reads any more are let go of."""
        values = {name: attrgetter(path)(self) for name, path in self._paths.items()}
        values.update(zip([one.name for one in self.inputs], inputs, strict=True))
        for step, dead in zip(self._network.steps, self._dead, strict=True):
            values.update(zip(step.outputs, step.run(values), strict=False))
            for name in dead:
                del values[name]
        return tuple(values[name] for name in self._network.outputs)

    def extra_repr(self) -> str:
        shown = ", ".join(f"{one.name} {one.shape}" for one in self.inputs)
        return f"{len(self._network.steps)} steps; {shown} -> {', '.join(self.outputs)}"


def _unused(holder: nn.Module, name: str, number: int) -> str:
    """A name that the module does not have; number: one that tells constants apart."""
    if hasattr(holder, name):
        name = f"{name}_{number}"
    while hasattr(holder, name):
        name += "_"
    return name


def _has_sample_dimension(network: Network, output: str) -> bool:
    """Whether dimension 0 of an output is that of the samples, as far as shapes tell."""
    shape = network.shape(output)
    return any(map(holds_samples, network.inputs)) and len(shape) > 1 and shape[0] == 1


def _as_samples(x: Tensor, of: Value) -> Tensor:
    """An input as (samples, *shape of one sample): given so, or flat; or one sample exactly as the
    file declares it."""
    shape = sample_shape(of)
    if x.shape[1:] == shape and x.dim() > 0:
        return x
    if not holds_samples(of) and x.shape == shape:
        return x.unsqueeze(0)
    if x.dim() == 0 or math.prod(x.shape[1:]) != math.prod(shape):
        raise ArgumentError(
            f"the input {of.name!r} must have the shape {('samples', *shape)}, not {tuple(x.shape)}"
        )
    return x.reshape(-1, *shape)


def _statistics(network: Network) -> set[str]:
    """Constants that are means and variances of batch norms: no weights."""
    return {
        arg
        for step in network.steps
        if step.function is batch_normalization
        for arg in step.args[3:5]
        if isinstance(arg, Ref)
    }


del _rows
