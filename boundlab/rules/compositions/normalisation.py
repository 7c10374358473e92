"""Normalisation over a batch, a layer, groups or instances."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition

Moments = tuple[Tensor, Tensor]
"""Mean and variance of each channel."""


def _channels(parameter: Tensor, dims: int) -> Tensor:
    """A parameter with one number a channel, (channels) -> (channels, 1, ...), beside a batch of
    ``dims`` dimensions."""
    return parameter.reshape(-1, *[1] * (dims - 2))


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x times the weight plus the bias, as far as there are such."""
    if weight is not None:
        x = x * weight
    if bias is not None:
        x = x + bias
    return x


def _scaled_by_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * _channels(weight, x.dim())
    if bias is not None:
        x = x + _channels(bias, x.dim())
    return x


# -- over a batch ----------------------------------------------------------------------------------


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, moments: Moments, eps: float
) -> Tensor:
    """A scale and a shift per channel."""
    mean, variance = moments
    scale = _scaled(torch.rsqrt(variance + eps), weight, None)
    shift = _scaled(-mean * scale, None, bias)
    return x * _channels(scale, x.dim()) + _channels(shift, x.dim())


def _batch_statistics(x: Tensor) -> Moments:
    """Of the clean batch: constants for the perturbation, but functions of the parameters that
    gradients flow through."""
    mean, variance = torch.ops.boundlab.moments(torch.ops.boundlab.clean(x)).unbind(0)
    return mean, variance


@composition(aten._native_batch_norm_legit_no_training.default)
def batch_norm_eval(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    result = _batch_norm(x, weight, bias, (running_mean, running_var), eps)
    return result, x.new_zeros(0), x.new_zeros(0)


@composition(aten._native_batch_norm_legit_functional.default)
def batch_norm_train(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    moments = running_mean, running_var
    if training:
        moments = _batch_statistics(x)
    return _batch_norm(x, weight, bias, moments, eps), *moments, running_mean, running_var


@composition(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    mean, variance = _batch_statistics(x)
    result = _batch_norm(x, weight, bias, (mean, variance), eps)
    return result, mean, torch.rsqrt(variance + eps)


@composition(aten.batch_norm.default)
def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    if training or running_mean is None or running_var is None:
        return _batch_norm(x, weight, bias, _batch_statistics(x), eps)
    return _batch_norm(x, weight, bias, (running_mean, running_var), eps)


# -- over each sample ------------------------------------------------------------------------------


def _normalised(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    """(x - mean) / sqrt(var + eps). No entry of a vector of n entries with mean 0 and mean square 1
    exceeds sqrt(n - 1), whatever x is."""
    count = math.prod(x.shape[d] for d in dims)
    centred = x - x.mean(tuple(dims), True)
    variance = (centred**2).mean(tuple(dims), True)
    limit = math.sqrt(max(count - 1, 0))
    return torch.ops.boundlab.within(centred * torch.rsqrt(variance + eps), -limit, limit, True)


@composition(aten.layer_norm.default)
def layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    dims = range(x.dim() - len(shape), x.dim())
    return _scaled(_normalised(x, dims, eps), weight, bias)


@composition(aten.rms_norm.default)
def rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x over the root of its mean square: no entry of n exceeds sqrt(n), whatever x is."""
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    dims = tuple(range(x.dim() - len(shape), x.dim()))
    limit = math.sqrt(math.prod(x.shape[d] for d in dims))
    result = x * torch.rsqrt((x**2).mean(dims, True) + eps)
    return _scaled(torch.ops.boundlab.within(result, -limit, limit, False), weight, None)


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
    return _scaled_by_channel(result, weight, bias)


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
    return _scaled_by_channel(_normalised(x, range(2, x.dim()), eps), weight, bias)
