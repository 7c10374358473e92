"""Picking elements, and writing into a tensor (what in-place assignments become)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from boundlab.rules.compositions.arithmetic import as_tensor
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
    rows = torch.index_select(weight, 0, indices.flatten())
    return rows.reshape(*indices.shape, *weight.shape[1:])


@composition(aten.copy.default)
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(x.dtype).expand(x.shape)


@composition(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: Tensor, value: Tensor | float) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(x.dtype).expand(x.shape)
    return torch.full_like(x, value)


@composition(aten.zero.default)
def zero(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


@composition(aten.slice_scatter.default)
def slice_scatter(
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    # a number that depends on a size is no int
    from_first = start is None or (isinstance(start, int) and start == 0)
    to_last = end is None or (isinstance(end, int) and end >= 1 << 62)
    if from_first and to_last and step == 1:
        return source.expand(x.shape)
    places = torch.arange(x.shape[dim], device=x.device)[slice(start, end, step)]
    return torch.index_copy(x, dim, places, source.expand(_with(x.shape, dim, len(places))))


def _with(shape: Sequence[int], dim: int, size: int) -> list[int]:
    """A shape with another size in one dimension."""
    sizes = list(shape)
    if sizes:  # a single number has none
        sizes[dim] = size
    return sizes


@composition(aten.select_scatter.default)
def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    place = torch.full((1,), index % x.shape[dim], dtype=torch.long, device=x.device)
    return torch.index_copy(x, dim, place, source.unsqueeze(dim))


@composition(aten.index_add.default)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    wide = index.reshape(_with([1] * x.dim(), dim, -1)).expand(source.shape)
    return torch.scatter_add(x, dim, wide, source * alpha)


@composition(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(x: Tensor, mask: Tensor, value: Tensor | float) -> Tensor:
    return torch.where(mask, as_tensor(value, x), x)
