"""Reductions, norms, losses and maxima, and the blocks made of them: attention and recurrent
layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.operator_cases.case import BATCH, add, normalised_batch


def fill() -> None:
    add((5,), {
        "amax": lambda x: x.amax(1),
        "amin, keepdim": lambda x: x.amin(1, keepdim=True),
        "max over a dimension": lambda x: x.max(1).values,
        "min over a dimension": lambda x: x.min(-1, keepdim=True).values,
        "argmax, unused": lambda x: torch.max(x, 1)[0] - torch.min(x, 1)[0],
        "softmax": lambda x: x.softmax(1),
        "softmax, in double": lambda x: F.softmax(x, -1, dtype=torch.float64).to(x.dtype),
        "softmin": lambda x: F.softmin(x, 1),
        "log_softmax": lambda x: F.log_softmax(x, -1),
        "log_softmax, in double": lambda x: F.log_softmax(x, -1, dtype=torch.float64).to(x.dtype),
        "softmax, steep": lambda x: (20 * x).softmax(1),
        "logsumexp": lambda x: x.logsumexp(1),
        "logsumexp, keepdim": lambda x: x - x.logsumexp((-1,), keepdim=True),
        "norm, 1": lambda x: torch.linalg.vector_norm(x, 1, dim=1),
        "norm, 2": lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
        "norm, 3": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
        "norm, 2.5": lambda x: torch.linalg.vector_norm(x, 2.5, dim=1),
        "norm, inf": lambda x: torch.linalg.vector_norm(x, math.inf, dim=1),
        "norm, -inf": lambda x: torch.linalg.vector_norm(x, -math.inf, dim=1),
        "norm, 0": lambda x: torch.linalg.vector_norm(x.round(), 0, dim=1),
        "norm, others": lambda x: torch.norm(x, dim=1) + torch.norm(x, p=1, dim=1) + torch.linalg.norm(x, dim=1) + torch.linalg.norm(x, 3, dim=1),
        "normalize": lambda x: F.normalize(x, dim=1),
        "normalize, 1": lambda x: F.normalize(x, p=1.0, dim=1, eps=0.5),
        "cosine_similarity": (lambda x, w: F.cosine_similarity(x, w, dim=1), (1, 5)),
        "cosine_similarity, eps": (lambda x, w: F.cosine_similarity(x, w, dim=1, eps=0.5), (1, 5)),
        "cosine_similarity, variables": lambda x: F.cosine_similarity(x[:, :2], x[:, 3:], dim=1, eps=0.1),
        "var": lambda x: x.var(1),
        "var, biased": lambda x: x.var(1, unbiased=False) + x.var(1, correction=2, keepdim=True).squeeze(1),
        "std": lambda x: x.std(1),
        "std, biased": lambda x: x.std(1, unbiased=False, keepdim=True) + x.std(dim=(1,), correction=3, keepdim=True),
        "var_mean and std_mean, other overloads": lambda x: torch.stack(
            [*torch.ops.aten.var_mean.dim(x, [1], False), *torch.ops.aten.std_mean.dim(x, [1]), *torch.ops.aten.std_mean.dim(x, [1], True, False)],
            1
        ),
        "var_mean, std_mean": lambda x: torch.stack([*torch.var_mean(x, 1), *torch.std_mean(x, dim=1, correction=0)], 1),
        "var_mean, correction": lambda x: torch.stack(torch.var_mean(x, dim=1, correction=0), 1),
        "prod": lambda x: x.prod(1),
        "prod, keepdim": lambda x: x[:, :3].prod(-1, keepdim=True),
        "prod, of one": lambda x: x[:, :1].prod(1),
        "layer_norm": nn.LayerNorm(5),
        "layer_norm, affine": _scrambled(nn.LayerNorm(5, eps=0.1)),
        "layer_norm, function": lambda x: F.layer_norm(x, (5,), eps=1e-3),
        "rms_norm": _scrambled(nn.RMSNorm(5)),
        "rms_norm, eps": nn.RMSNorm(5, eps=0.1, elementwise_affine=False),
        "cumulative maximum by hand": lambda x: torch.stack([x[:, :2].amax(1), x[:, :3].amax(1)], 1),
        "any, all": lambda x: torch.where((x > 0).any(1), x[:, 0], x[:, 1]) + torch.where((x > -1).all(1, keepdim=True), x, 0.0)[:, 2],
        "count": lambda x: (x > 0).sum(1) * 0.5,
        "count as a number": lambda x: (x > 0).to(x.dtype).sum(1) + (x > 0).sum(1).to(x.dtype),
        "mean of comparisons": lambda x: (x > 0).to(x.dtype).mean(1),
        "margin": lambda x: x[:, :1] - x[:, 1:],
    })  # fmt: skip
    add((4, 3), {
        "amax, several dimensions": lambda x: x.amax((1, 2)) - x.amin((-1, 1)),
        "amax, several dimensions kept": lambda x: x - x.amax((1, 2), keepdim=True) + x.amin((1, 2), keepdim=True),
        "amax, middle dimension": lambda x: x.amax(1, keepdim=True) - x,
        "softmax, middle dimension": lambda x: x.softmax(1),
        "softmax2d": lambda x: nn.Softmax2d()(x.unsqueeze(-1)),
        "log_softmax, middle dimension": lambda x: x.log_softmax(1),
        "logsumexp, several dimensions": lambda x: x.logsumexp((1, 2)),
        "logsumexp, several dimensions kept": lambda x: x.logsumexp((1, 2), keepdim=True) - x,
        "var, several dimensions": lambda x: x.var((1, 2)) + x.std((1, 2), correction=0),
        "norm, several dimensions": lambda x: torch.linalg.vector_norm(x, dim=(1, 2)) + torch.linalg.vector_norm(x, 3, (1, 2), True).flatten(),
        "glu": lambda x: F.glu(x, 1),
        "glu, first half": lambda x: F.glu(x[:, :2], 1),
        "layer_norm, two dimensions": _scrambled(nn.LayerNorm((4, 3))),
        "group_norm": _scrambled(nn.GroupNorm(2, 4)),
        "group_norm, not affine": nn.GroupNorm(4, 4, affine=False),
        "group_norm, one group": nn.GroupNorm(1, 4, eps=0.1),
        "instance_norm": nn.InstanceNorm1d(4),
        "instance_norm, affine": _scrambled(nn.InstanceNorm1d(4, affine=True)),
        "instance_norm, running statistics": normalised_batch(nn.InstanceNorm1d(4, affine=True, track_running_stats=True)),
        "max over flattened": lambda x: x.flatten(1).max(1)[0],
        "attention by hand": lambda x: torch.softmax(x @ x.mT / 2, -1) @ x,
    })  # fmt: skip
    labels = torch.arange(BATCH) % 4
    ignored = torch.where(labels == 2, -100, labels)
    pixels = torch.arange(BATCH * 2).reshape(BATCH, 2) % 4
    weight = torch.tensor([0.5, 1.0, 2.0, 0.2])
    add((4,), {
        "cross_entropy": (lambda x, y: F.cross_entropy(x, y, reduction="none"), labels),
        "cross_entropy, label_smoothing": (lambda x, y: F.cross_entropy(x, y, reduction="none", label_smoothing=0.2), labels),
        "cross_entropy, weight": (lambda x, y, w: F.cross_entropy(x, y, w, reduction="none"), labels, weight),
        "cross_entropy, ignore_index": (lambda x, y: F.cross_entropy(x, y, reduction="none"), ignored),
        "cross_entropy, all": (
            lambda x, y,
            w: F.cross_entropy(x, y, w, reduction="none", label_smoothing=0.1, ignore_index=2),
            labels, weight,
        ),
        "cross_entropy, probabilities": (
            lambda x, y,
            w: F.cross_entropy(x, y.softmax(1), w, reduction="none", label_smoothing=0.1),
            (BATCH, 4), weight,
        ),
        "nll_loss": (lambda x, y: F.nll_loss(x, y, reduction="none"), labels),
        "nll_loss, weight and ignore_index": (lambda x, y, w: F.nll_loss(x, y, w, ignore_index=1, reduction="none"), labels, weight),
        "gather, constant per sample": (lambda x, y: x.gather(1, y.unsqueeze(1)), labels),
        "margins of labels": (lambda x, y: x - x.gather(1, y.unsqueeze(1)), labels),
        "multi_margin by hand": (lambda x, y: (1 + x - x.gather(1, y.unsqueeze(1))).clamp(min=0).sum(1), labels),
    }, alone=True)  # fmt: skip
    add((4, 2), {
        "cross_entropy, pixels": (lambda x, y: F.cross_entropy(x, y, reduction="none"), pixels),
        "nll_loss, pixels": (lambda x, y: F.nll_loss(x, y, reduction="none"), pixels),
    }, alone=True)  # fmt: skip
    add((2, 7), {
        "max_pool1d": nn.MaxPool1d(2),
        "max_pool1d, stride": nn.MaxPool1d(3, 1),
        "max_pool1d, padding": nn.MaxPool1d(3, 2, 1),
        "max_pool1d, dilation": nn.MaxPool1d(2, 2, 1, dilation=3),
        "max_pool1d, ceil_mode": nn.MaxPool1d(3, 3, ceil_mode=True),
        "adaptive_max_pool1d": nn.AdaptiveMaxPool1d(3),
    })  # fmt: skip
    add((1, 5, 5), {
        "max_pool2d": nn.MaxPool2d(2),
        "max_pool2d, overlapping": nn.MaxPool2d(3, 1),
        "max_pool2d, padding": nn.MaxPool2d(3, 2, 1),
        "max_pool2d, rectangles": nn.MaxPool2d((2, 3), (1, 2), (1, 0)),
        "max_pool2d, dilation": nn.MaxPool2d(2, 1, dilation=(1, 3)),
        "max_pool2d, ceil_mode": nn.MaxPool2d(2, 2, ceil_mode=True),
        "max_pool2d, all": nn.MaxPool2d((2, 3), (3, 2), (1, 1), (2, 1), ceil_mode=True),
        "adaptive_max_pool2d": nn.AdaptiveMaxPool2d((2, 3)),
        "adaptive_max_pool2d, none": nn.AdaptiveMaxPool2d((None, 1)),
        "group_norm 2d": nn.Sequential(nn.Conv2d(1, 2, 4), nn.GroupNorm(2, 2)),
        "instance_norm 2d": nn.InstanceNorm2d(1),
    })  # fmt: skip
    add((1, 3, 3, 3), {
        "max_pool3d": nn.MaxPool3d(2, 1),
        "max_pool3d, attributes": nn.MaxPool3d(2, 2, 1, ceil_mode=True),
        "max_pool3d, dilation": nn.MaxPool3d((2, 1, 3), dilation=(2, 1, 1)),
        "adaptive_max_pool3d": nn.AdaptiveMaxPool3d((1, 2, 2)),
        "instance_norm 3d": nn.InstanceNorm3d(1),
    })  # fmt: skip
    triangle = torch.ones(3, 3, dtype=torch.bool).tril()
    add((3, 6), {
        "attention": _attend(),
        "attention, scale": _attend(scale=0.3),
        "attention, causal": _attend(is_causal=True),
        "attention, boolean mask": (_attend(), triangle.flip(0)),
        "attention, row masked away": (_attend(), torch.tensor([[True, True, False], [False, False, False], [True, True, True]])),
        "attention, float mask": (_attend(), (3, 3)),
        "attention, infinite mask": (_attend(), torch.zeros(3, 3).masked_fill(~triangle, -math.inf)),
        "attention, large mask": (_attend(), torch.zeros(3, 3).masked_fill(~triangle, -1e9)),
        "attention, heads": lambda x: F.scaled_dot_product_attention(*[t.unflatten(-1, (1, 2)).transpose(1, 2) for t in x.chunk(3, -1)]),
        "attention, grouped": lambda x: F.scaled_dot_product_attention(
            x.unflatten(-1, (3, 2)).transpose(1, 2)[:, :2], x[:, None, :, :2], x[:, None, :, 4:],
            enable_gqa=True
        ),
    })  # fmt: skip
    add((2, 4), {
        "MultiheadAttention": Attention(),
        "MultiheadAttention, causal": Attention(attn_mask=~triangle[:2, :2]),
        "TransformerEncoderLayer": nn.TransformerEncoderLayer(4, 2, 6, batch_first=True),
        "TransformerEncoderLayer, norm_first, gelu": nn.TransformerEncoderLayer(4, 2, 6, activation="gelu", batch_first=True, norm_first=True),
    })  # fmt: skip
    add((2, 2), {
        "LSTM": nn.LSTM(2, 2, batch_first=True),
        "LSTM, two layers": nn.LSTM(2, 1, 2, batch_first=True),
        "LSTM, bidirectional": nn.LSTM(2, 1, batch_first=True, bidirectional=True),
        "LSTM, no bias": nn.LSTM(2, 2, bias=False, batch_first=True),
        "LSTM, time first": TimeFirst(nn.LSTM(2, 2)),
        "GRU": nn.GRU(2, 2, batch_first=True),
        "GRU, two layers": nn.GRU(2, 1, 2, batch_first=True),
        "GRU, bidirectional": nn.GRU(2, 1, batch_first=True, bidirectional=True),
        "RNN": nn.RNN(2, 2, batch_first=True),
        "RNN, relu": nn.RNN(2, 2, nonlinearity="relu", batch_first=True),
        "RNN, relu, two layers": nn.RNN(2, 2, 2, nonlinearity="relu", batch_first=True, bidirectional=True),
    })  # fmt: skip
    add((6,), {
        "LSTMCell": Cell(nn.LSTMCell(3, 2)),
        "GRUCell": Cell(nn.GRUCell(3, 2)),
        "RNNCell": Cell(nn.RNNCell(3, 2)),
        "RNNCell, relu": Cell(nn.RNNCell(3, 2, nonlinearity="relu", bias=False)),
    })  # fmt: skip


def _scrambled(layer: nn.Module) -> nn.Module:
    """A layer whose parameters are not the initial ones."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def _attend(**options: Any) -> Callable[..., Tensor]:
    """Attention of x with itself: query, key and value are thirds of the last dimension."""

    def run(x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = x.chunk(3, -1)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **options)

    return run


class Cell(nn.Module):
    """Two steps of a recurrent cell over the halves of x."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Any:
        first, second = x.chunk(2, 1)
        return self.cell(second, self.cell(first))


class TimeFirst(nn.Module):
    """A recurrent layer that keeps time in dimension 0."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1))[0]


class Attention(nn.Module):
    """Self-attention with constant masks."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False, **self.options)[0]
