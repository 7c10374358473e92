"""Normalisation over a batch, a layer, groups or instances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition


def _channels(parameter: Tensor, dims: int) -> Tensor:
    return parameter.reshape(-1, *[1] * (dims - 2))


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
) -> Tensor:
    """A scale and a shift per channel."""
    scale = torch.rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale
    shift = shift if bias is None else shift + bias
    return x * _channels(scale, x.dim()) + _channels(shift, x.dim())


def _batch_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of the clean batch: constants for the perturbation, but functions of the parameters that
    gradients flow through."""
    mean, variance = torch.ops.boundlab.moments(torch.ops.boundlab.clean(x)).unbind(0)
    return mean, variance


@composition(aten._native_batch_norm_legit_no_training.default)
def batch_norm_eval(
    x: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        _batch_norm(x, weight, bias, running_mean, running_var, eps),
        x.new_zeros(0),
        x.new_zeros(0),
    )


@composition(aten._native_batch_norm_legit_functional.default)
def batch_norm_train(
    x: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    mean, variance = _batch_statistics(x) if training else (running_mean, running_var)
    return (
        _batch_norm(x, weight, bias, mean, variance, eps),
        mean,
        variance,
        running_mean,
        running_var,
    )


@composition(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    mean, variance = _batch_statistics(x)
    return _batch_norm(x, weight, bias, mean, variance, eps), mean, torch.rsqrt(variance + eps)


@composition(aten.batch_norm.default)
def batch_norm(
    x: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    mean, variance = (
        _batch_statistics(x) if training or running_mean is None else (running_mean, running_var)
    )
    return _batch_norm(x, weight, bias, mean, variance, eps)


def _normalised(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    """(x - mean) / sqrt(var + eps). No entry of a vector of n entries with mean 0 and mean square 1
    exceeds sqrt(n - 1), whatever x is."""
    count = math.prod(x.shape[d] for d in dims)
    centred = x - x.mean(tuple(dims), True)
    variance = (centred**2).mean(tuple(dims), True)
    limit = math.sqrt(max(count - 1, 0))
    return torch.ops.boundlab.within(centred * torch.rsqrt(variance + eps), -limit, limit)


@composition(aten.layer_norm.default)
def layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    result = _normalised(x, [x.dim() - len(shape) + i for i in range(len(shape))], eps)
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


@composition(aten.rms_norm.default)
def rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    dims = tuple(x.dim() - len(shape) + i for i in range(len(shape)))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    limit = math.sqrt(math.prod(x.shape[d] for d in dims))
    result = torch.ops.boundlab.within(
        x * torch.rsqrt((x**2).mean(dims, True) + eps), -limit, limit
    )
    return result if weight is None else result * weight


@composition(aten.group_norm.default)
def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    result = _normalised(split, range(2, split.dim()), eps).reshape(x.shape)
    result = result if weight is None else result * _channels(weight, x.dim())
    return result if bias is None else result + _channels(bias, x.dim())


@composition(aten.instance_norm.default)
def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    if not use_input_stats:
        return batch_norm(
            x, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled
        )
    result = _normalised(x, range(2, x.dim()), eps)
    result = result if weight is None else result * _channels(weight, x.dim())
    return result if bias is None else result + _channels(bias, x.dim())
