"""Attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundlab.errors import CaptureError
from boundlab.rules.compositions.softmaxes import softmax_where
from boundlab.rules.registry import aten, composition


@composition(aten.scaled_dot_product_attention.default)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if dropout_p:
        raise CaptureError(
            "attention with dropout is random: put the model in eval mode before capturing it"
        )
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    scores = torch.matmul(query * scale, key.transpose(-1, -2))
    if is_causal:
        scores = _causal(scores, query.shape[-2], key.shape[-2])
    if attn_mask is None:
        return torch.matmul(torch.softmax(scores, -1), value)
    if attn_mask.dtype != torch.bool:
        return torch.matmul(softmax_where(scores + attn_mask, attn_mask != -math.inf, -1), value)
    return torch.matmul(softmax_where(scores, attn_mask, -1), value)


def _causal(scores: Tensor, queries: int, keys: int) -> Tensor:
    """(..., queries, keys) with -inf where a key comes behind its query."""
    allowed = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril()
    masked = torch.full((), -math.inf, dtype=scores.dtype, device=scores.device)
    return torch.where(allowed, scores, masked)
