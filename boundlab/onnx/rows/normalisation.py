"""Normalisation, with statistics that are given or of the value itself."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.errors import UnsupportedOperator
from boundlab.onnx.table import Ints, row


@row("BatchNormalization")
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
    is_test: int = 1,
) -> Tensor:
    """By the statistics of the file; momentum would be that of training."""
    if training_mode:
        raise UnsupportedOperator("it is in training mode: export the model in eval mode")
    if not spatial:
        raise UnsupportedOperator("it has statistics for each element (spatial = 0)")
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


@row("InstanceNormalization")
def instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    return F.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@row("LayerNormalization")
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    n_outputs: int,
) -> tuple[Tensor, ...]:
    """The normalised value; its mean and the reciprocal of its deviation if they are asked for."""
    shape = x.shape[axis:]
    shift = None if bias is None else bias.expand(shape)
    found = F.layer_norm(x, shape, scale.expand(shape), shift, epsilon)
    if n_outputs == 1:
        return (found,)
    axes = list(range(axis % x.dim(), x.dim()))
    mean = x.mean(axes, keepdim=True)
    spread = ((x - mean) ** 2).mean(axes, keepdim=True)
    return found, mean, torch.rsqrt(spread + epsilon)


@row("GroupNormalization", since=18)
def group_normalization_by_groups(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int
) -> Tensor:
    """Until opset 20 there is one scale and one bias for each group."""
    size = x.shape[1] // num_groups
    wide = [one.repeat_interleave(size) for one in (scale, bias)]
    return F.group_norm(x, num_groups, wide[0], wide[1], epsilon)


@row("GroupNormalization", since=21)
def group_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Tensor:
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@row("RMSNormalization")
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    axes = list(range(axis % x.dim(), x.dim()))
    squares = (x * x).mean(axes, keepdim=True)
    return x / torch.sqrt(squares + epsilon) * scale


@row("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """A vector of zeros stays what it is."""
    if p == 1:
        size = x.abs().sum(axis, keepdim=True)
    else:
        size = torch.sqrt((x * x).sum(axis, keepdim=True))
    return x / size.clamp(min=torch.finfo(x.dtype).tiny)


@row("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, *, axes: Ints = (0, 2, 3)) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred / (torch.sqrt((centred * centred).mean(axes, keepdim=True)) + 1e-9)


@row("LRN")
def local_response(
    x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int
) -> Tensor:
    """By the mean square of neighbouring channels."""
    before = (size - 1) // 2
    sides = [0, 0] * (x.dim() - 2) + [before, size - 1 - before]
    squares = F.pad(x * x, sides).unfold(1, size, 1).sum(-1)
    return x / (bias + alpha / size * squares) ** beta
