"""Products with constant matrices as linear layers: one step, with the weight as nn.Linear has it,
(out, in), where ONNX has Gemm, or MatMul and Add."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from boundlab.onnx.network import Network, Ref, Step
from boundlab.onnx.rows.elementwise import add
from boundlab.onnx.rows.linear import dense, gemm, matmul


def with_layers(network: Network) -> Network:
    """The network with such products in the form of layers."""
    constants = dict(network.constants)
    readers = Counter(name for step in network.steps for name in step.reads)
    readers.update(network.outputs)
    steps: list[Step] = []
    for step in network.steps:
        found = _layer(step, network, readers, constants)
        last = steps[-1] if steps else None
        if found is None and last is not None and last.function is dense:
            merged = _with_bias(last, step, network, readers, constants)
            if merged is not None:
                steps[-1] = merged
                continue
        steps.append(found or step)
    return replace(network, steps=steps, constants=constants).without_dead()


def _constant(network: Network, arg: object) -> Tensor | None:
    return network.constants.get(arg) if isinstance(arg, Ref) else None


def _layer(
    step: Step, network: Network, readers: Counter[str], constants: dict[str, Tensor]
) -> Step | None:
    """A Gemm or MatMul of a value with a constant matrix as a layer; None if it is none."""
    if step.function not in (gemm, matmul) or step.kwargs.get("transA"):
        return None
    x, b, given = [*step.args, None][:3]
    weight = _constant(network, b)
    if weight is None or weight.dim() != 2 or _constant(network, x) is not None:
        return None
    if not step.kwargs.get("transB"):
        weight = weight.t()
    bias = _as_bias(_constant(network, given), len(weight))
    if given is not None and bias is None:
        return None
    weight = _times(step.kwargs.get("alpha", 1.0), weight)
    args = [x, _kept(b, weight, network, readers, constants)]
    if given is not None and bias is not None:
        bias = _times(step.kwargs.get("beta", 1.0), bias)
        args.append(_kept(given, bias, network, readers, constants))
    return Step(step.title, dense, tuple(args), {}, step.outputs)


def _with_bias(
    layer: Step, step: Step, network: Network, readers: Counter[str], constants: dict[str, Tensor]
) -> Step | None:
    """A layer without a bias and the sum behind it as one layer; None if it is not that."""
    (name,) = layer.outputs
    if len(layer.args) > 2 or step.function is not add or name not in step.args:
        return None
    (given,) = [arg for arg in step.args if arg != name] or [None]
    bias = _constant(network, given)
    if bias is None or readers[name] > 1 or bias.dim() > len(network.shape(name)):
        return None
    bias = _as_bias(bias, constants[layer.args[1]].shape[0])
    if bias is None:
        return None
    assert given is not None
    kept = _kept(given, bias, network, readers, constants)
    return Step(layer.title, dense, (*layer.args, kept), {}, step.outputs)


def _times(factor: float, value: Tensor) -> Tensor:
    return value if factor == 1 else factor * value


def _as_bias(given: Tensor | None, size: int) -> Tensor | None:
    """A constant that broadcasts along everything but the last dimension, as (size,)."""
    if given is None or given.numel() not in (1, size):
        return None
    if given.numel() == size and given.dim() and given.shape[-1] != size:
        return None
    return given.reshape(-1).expand(size)


def _kept(
    name: str, value: Tensor, network: Network, readers: Counter[str], constants: dict[str, Tensor]
) -> Ref:
    """A constant under its own name, or under another one if something else reads it too."""
    if readers[name] > 1:
        name = next(
            other
            for other in (f"{name}.layer{number or ''}" for number in count())
            if _is_free(other, network) and _is_or_may_be(constants.get(other), value)
        )
    constants[name] = value.clone(memory_format=torch.contiguous_format)
    return Ref(name)


def _is_free(name: str, network: Network) -> bool:
    return name not in network.meta and name not in network.constants


def _is_or_may_be(held: Tensor | None, value: Tensor) -> bool:
    """Whether a layer made the same constant before, or none of this name."""
    return held is None or (held.shape == value.shape and torch.equal(held, value))
