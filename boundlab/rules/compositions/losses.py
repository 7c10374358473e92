"""Losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from boundlab.rules.compositions.arithmetic import xlogy
from boundlab.rules.compositions.extremes import minimum
from boundlab.rules.compositions.norms import pairwise_distance
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


# -- pieces of parabolas and lines -----------------------------------------------------------------


@composition(aten.huber_loss.default)
def huber_loss(x: Tensor, y: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Tensor:
    return _reduce(torch.ops.boundlab.smooth_abs.default(x - y, delta, delta), reduction)


@composition(aten.smooth_l1_loss.default)
def smooth_l1_loss(x: Tensor, y: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Tensor:
    if beta == 0:
        return l1_loss(x, y, reduction)
    return _reduce(torch.ops.boundlab.smooth_abs.default(x - y, beta, 1.0), reduction)


# -- probabilities ---------------------------------------------------------------------------------

LEAST_LOGARITHM = -100.0
"""What torch takes for the logarithm of 0 in a cross entropy."""


@composition(aten.kl_div.default)
def kl_div(x: Tensor, y: Tensor, reduction: int = MEAN, *, log_target: bool = False) -> Tensor:
    if log_target:
        return _reduce(torch.exp(y) * (y - x), reduction)
    return _reduce(xlogy(y, y) - y * x, reduction)


@composition(aten.binary_cross_entropy.default)
def binary_cross_entropy(
    x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    of_one = torch.clamp_min(torch.log(x), LEAST_LOGARITHM)
    of_zero = torch.clamp_min(torch.log1p(-x), LEAST_LOGARITHM)
    return _reduce(_weighted((y - 1) * of_zero - y * of_one, weight), reduction)


@composition(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    of_sigmoid = F.logsigmoid(x)
    if pos_weight is not None:
        of_sigmoid = of_sigmoid * ((pos_weight - 1) * y + 1)
    return _reduce(_weighted((1 - y) * x - of_sigmoid, weight), reduction)


def _weighted(loss: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return loss
    return loss * weight


# -- margins ---------------------------------------------------------------------------------------


@composition(aten.margin_ranking_loss.default)
def margin_ranking_loss(
    x: Tensor, y: Tensor, target: Tensor, margin: float = 0.0, reduction: int = MEAN
) -> Tensor:
    return _reduce(torch.clamp_min(target * (y - x) + margin, 0), reduction)


@composition(aten.soft_margin_loss.default)
def soft_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    return _reduce(-F.logsigmoid(target * x), reduction)


@composition(aten.triplet_margin_loss.default)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = MEAN,
) -> Tensor:
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduce(torch.clamp_min(margin + near - far, 0), reduction)
