"""Losses."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.rules.compositions.softmaxes import log_softmax
from boundlab.rules.registry import aten, composition


@composition(aten.nll_loss_nd.default, aten.nll_loss.default)
def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> Tensor:
    dim = 0 if x.dim() == 1 else 1
    kept = target != ignore_index
    index = torch.where(kept, target, 0)
    picked = torch.gather(x, dim, index.unsqueeze(dim)).squeeze(dim)
    weights = torch.ones_like(kept, dtype=x.dtype) if weight is None else weight[index]
    weights = weights * kept.to(x.dtype)
    return _reduce(-picked * weights, reduction, weights)


@composition(aten.cross_entropy_loss.default)
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    dim = 0 if x.dim() == 1 else 1
    logp = log_softmax(x, dim)
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    if target.is_floating_point():  # class probabilities
        classes = x.shape[dim]
        target = target * (1 - label_smoothing) + label_smoothing / classes
        scaled = logp * target if weight is None else logp * target * weight.reshape(shape)
        loss = -scaled.sum(dim)
        return loss.mean() if reduction == 1 else _reduce(loss, reduction)
    plain = nll_loss(logp, target, weight, 0, ignore_index)
    kept = target != ignore_index
    weights = (
        kept.to(x.dtype)
        if weight is None
        else weight[torch.where(kept, target, 0)] * kept.to(x.dtype)
    )
    if label_smoothing:
        spread = -(logp if weight is None else logp * weight.reshape(shape)).sum(dim) * kept.to(
            x.dtype
        )
        plain = (1 - label_smoothing) * plain + label_smoothing / x.shape[dim] * spread
    return _reduce(plain, reduction, weights)


@composition(aten.mse_loss.default)
def mse_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    return _reduce((x - y) ** 2, reduction)


@composition(aten.l1_loss.default)
def l1_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    return _reduce((x - y).abs(), reduction)


def _reduce(loss: Tensor, reduction: int, weights: Tensor | None = None) -> Tensor:
    if reduction == 0:
        return loss
    if reduction == 2:
        return loss.sum()
    return loss.mean() if weights is None else loss.sum() * torch.reciprocal(weights.sum())
