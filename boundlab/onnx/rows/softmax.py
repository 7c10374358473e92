"""Softmax and its relatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.onnx.table import row


def _hardmax(x: Tensor, dim: int) -> Tensor:
    """1 at the first of the largest elements, 0 elsewhere."""
    largest = x.argmax(dim, keepdim=True)
    return torch.zeros_like(x).scatter(dim, largest, 1.0)


FUNCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "Softmax": lambda x, dim: torch.softmax(x, dim),
    "LogSoftmax": lambda x, dim: torch.log_softmax(x, dim),
    "Hardmax": _hardmax,
}


def _over_the_rest(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    """Until opset 12: over all dimensions from axis on, as one."""

    def apply(x: Tensor, *, axis: int = 1) -> Tensor:
        axis %= max(x.dim(), 1)
        if axis >= x.dim() - 1:
            return function(x, -1)
        return function(x.flatten(axis), -1).unflatten(axis, x.shape[axis:])

    return apply


def _over_one(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def apply(x: Tensor, *, axis: int = -1) -> Tensor:
        return function(x, axis)

    return apply


for _name, _function in FUNCTIONS.items():
    row(_name)(_over_the_rest(_function))
    row(_name, since=13)(_over_one(_function))


@row("Attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 1,
) -> Tensor:
    """Scaled dot products, of heads (batch, heads, length, size) or joined ones (batch, length,
    heads * size). The mode is that of an output which is not supported."""
    joined = q.dim() == 3
    if joined:
        q, k, v = (
            one.unflatten(2, (heads, one.shape[2] // heads)).transpose(1, 2)
            for one, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
        )
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = torch.matmul(q, k.transpose(2, 3)) * factor
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    seen = _seen(scores, mask, bool(is_causal))
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + F.pad(mask, (0, scores.shape[-1] - mask.shape[-1]), value=-math.inf)
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    found = torch.matmul(torch.softmax(scores, -1), v)
    if seen is not None:  # who sees nothing gets nothing
        found = torch.where(seen.any(-1, keepdim=True), found, torch.zeros_like(found))
    return found.transpose(1, 2).flatten(2) if joined else found


def _seen(scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """What may be seen, by a mask of truth values (what lies behind its end may not) and by order;
    None for everything."""
    rows, columns = scores.shape[-2:]
    found = None
    if causal:
        found = torch.ones(rows, columns, dtype=torch.bool, device=scores.device).tril()
    if mask is None or mask.dtype != torch.bool:
        return found
    wide = F.pad(mask, (0, columns - mask.shape[-1]), value=False)
    return wide if found is None else wide & found


@row("RotaryEmbedding")
def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Pairs of features turned by angles, of heads (batch, heads, length, size) or joined ones
    (batch, length, heads * size). positions: rows of the angles; else there is a row for each
    element of the sequence. Pairs are neighbours, or an element of each half."""
    joined = x.dim() == 3
    if joined:
        x = x.unflatten(2, (num_heads, x.shape[2] // num_heads)).transpose(1, 2)
    size = rotary_embedding_dim or x.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = (one[..., : size // 2].unsqueeze(1) for one in (cos, sin))
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., : size // 2], turned[..., size // 2 :]
    pair = (cos * first - sin * second, sin * first + cos * second)
    found = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    if rest.shape[-1]:
        found = torch.cat([found, rest], -1)
    return found.transpose(1, 2).flatten(2) if joined else found
