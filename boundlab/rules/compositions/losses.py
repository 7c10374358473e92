"""Losses."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.rules.compositions.softmaxes import log_softmax
from boundlab.rules.registry import aten, composition

MEAN = 1
"""torch's number for a loss that is the mean over the batch; 0 leaves it as it is, 2 sums it."""


def _reduce(loss: Tensor, reduction: int, weights: Tensor | None = None) -> Tensor:
    """The loss of the batch; the mean is weighted if there are weights."""
    if reduction == 0:
        return loss
    if reduction == 2:
        return loss.sum()
    if weights is None:
        return loss.mean()
    return loss.sum() * torch.reciprocal(weights.sum())


def _class_dimension(x: Tensor) -> int:
    """Where scores have their classes: behind the samples, unless there is only one."""
    return min(x.dim() - 1, 1)


@composition(aten.nll_loss_nd.default, aten.nll_loss.default)
def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
) -> Tensor:
    dim = _class_dimension(x)
    kept = target != ignore_index
    index = torch.where(kept, target, 0)
    picked = torch.gather(x, dim, index.unsqueeze(dim)).squeeze(dim)
    if weight is None:
        weights = torch.ones_like(kept, dtype=x.dtype)
    else:
        weights = weight[index]
    weights = weights * kept.to(x.dtype)
    return _reduce(-picked * weights, reduction, weights)


@composition(aten.cross_entropy_loss.default)
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    dim = _class_dimension(x)
    classes = x.shape[dim]
    logp = log_softmax(x, dim)
    if target.is_floating_point():  # class probabilities
        target = target * (1 - label_smoothing) + label_smoothing / classes
        return _reduce(-_summed_over_classes(logp * target, weight, dim), reduction)
    loss = nll_loss(logp, target, weight, 0, ignore_index)
    kept = target != ignore_index
    weights = kept.to(x.dtype)
    if weight is not None:
        weights = weight[torch.where(kept, target, 0)] * weights
    if label_smoothing:
        spread = -_summed_over_classes(logp, weight, dim) * kept.to(x.dtype)
        loss = (1 - label_smoothing) * loss + label_smoothing / classes * spread
    return _reduce(loss, reduction, weights)


def _summed_over_classes(x: Tensor, weight: Tensor | None, dim: int) -> Tensor:
    """The sum over the classes, which are in dimension ``dim``, with the weight of each."""
    if weight is not None:
        shape = [1] * x.dim()
        shape[dim] = -1
        x = x * weight.reshape(shape)
    return x.sum(dim)


@composition(aten.mse_loss.default)
def mse_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    return _reduce((x - y) ** 2, reduction)


@composition(aten.l1_loss.default)
def l1_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    return _reduce((x - y).abs(), reduction)
