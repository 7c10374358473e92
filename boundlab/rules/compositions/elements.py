"""Picking elements, and writing into a tensor (what in-place assignments become)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition


@composition(aten.embedding.default)
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """As a plain selection of rows: the gradient of embedding ignores the padding row, so it is not
    the transpose."""
    return torch.index_select(weight, 0, indices.flatten()).reshape(
        *indices.shape, *weight.shape[1:]
    )


@composition(aten.copy.default)
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(x.dtype).expand(x.shape)


@composition(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: Tensor, value: Any) -> Tensor:
    return (
        value.to(x.dtype).expand(x.shape)
        if isinstance(value, Tensor)
        else torch.full_like(x, value)
    )


@composition(aten.zero.default)
def zero(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


@composition(aten.slice_scatter.default)
def slice_scatter(
    x: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    whole = (
        (start is None or (isinstance(start, int) and start == 0))
        and (end is None or (isinstance(end, int) and end >= 1 << 62))
        and step == 1
    )
    if whole:
        return source.expand(x.shape)
    places = torch.arange(x.shape[dim], device=x.device)[slice(start, end, step)]
    return torch.index_copy(
        x,
        dim,
        places,
        source.expand([len(places) if d == dim % x.dim() else n for d, n in enumerate(x.shape)]),
    )


@composition(aten.select_scatter.default)
def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    place = torch.full((1,), index % x.shape[dim], dtype=torch.long, device=x.device)
    return torch.index_copy(x, dim, place, source.unsqueeze(dim))


@composition(aten.index_add.default)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    shape = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    return torch.scatter_add(x, dim, index.reshape(shape).expand(source.shape), source * alpha)


@composition(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    value = (
        value
        if isinstance(value, Tensor)
        else torch.full((), value, dtype=x.dtype, device=x.device)
    )
    return torch.where(mask, value, x)
