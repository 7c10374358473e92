"""The largest and the smallest value, and the smooth form of the largest."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition


def _pairs(x: Tensor, y: Tensor) -> Tensor:
    """Both beside each other in a new last dimension, in one type. A number on the CPU may meet a
    tensor of another device: it goes there first."""
    device, kind = y.device, torch.result_type(x, y)
    if x.dim():
        device = x.device
    return torch.stack(torch.broadcast_tensors(x.to(device, kind), y.to(device, kind)), -1)


@composition(aten.logaddexp.default)
def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    return torch.logsumexp(_pairs(x, y), -1)


@composition(aten.maximum.default, aten.fmax.default, aten.max.other)
def maximum(x: Tensor, y: Tensor) -> Tensor:
    return torch.amax(_pairs(x, y), -1)


@composition(aten.minimum.default, aten.fmin.default, aten.min.other)
def minimum(x: Tensor, y: Tensor) -> Tensor:
    return -maximum(-x, -y)


@composition(aten.clamp.Tensor)
def clamp_tensor(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    if min is not None:
        x = maximum(x, min)
    if max is not None:
        x = minimum(x, max)
    return x


@composition(aten.clamp_min.Tensor)
def clamp_min_tensor(x: Tensor, min: Tensor) -> Tensor:
    return maximum(x, min)


@composition(aten.clamp_max.Tensor)
def clamp_max_tensor(x: Tensor, max: Tensor) -> Tensor:
    return minimum(x, max)


@composition(aten.amin.default)
def amin(x: Tensor, dim: int | list[int] | tuple[int, ...] = (), keepdim: bool = False) -> Tensor:
    return -torch.amax(-x, dim, keepdim)


@composition(aten.max.default)
def max_all(x: Tensor) -> Tensor:
    return torch.amax(x, tuple(range(x.dim())))


@composition(aten.min.default)
def min_all(x: Tensor) -> Tensor:
    return -torch.amax(-x, tuple(range(x.dim())))


@composition(aten.max.dim)
def max_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return torch.amax(x, (dim,), keepdim), torch.argmax(x, dim, keepdim)


@composition(aten.min.dim)
def min_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return -torch.amax(-x, (dim,), keepdim), torch.argmin(x, dim, keepdim)


@composition(aten.aminmax.default)
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    dims = tuple(range(x.dim()))
    if dim is not None:
        dims = (dim,)
    return -torch.amax(-x, dims, keepdim), torch.amax(x, dims, keepdim)
