"""Gathers and scatters with known indices, for any number of samples: each element of the result is
one of the elements that the step reads, or a sum of some of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.onnx.network import Network, Ref, Step
from boundlab.onnx.rows.indexing import gather_elements, gather_nd, scatter_elements, scatter_nd
from boundlab.onnx.table import Ints, check_room

GATHERS = (gather_nd, gather_elements)
SCATTERS = (scatter_nd, scatter_elements)


@dataclass(frozen=True)
class Selection:
    """values: what a step reads besides its indices; table: which of their elements in a row the
    result has, or for sums the matrix by which updates are added."""

    values: tuple[Ref, ...]
    table: Tensor
    sums: bool


def selection(step: Step, network: Network) -> Selection | None:
    """What a step chooses for one sample; None if it does anything else."""
    if step.function not in (*GATHERS, *SCATTERS):
        return None
    x, indices, *updates = step.args
    if not isinstance(indices, Ref) or indices not in network.constants:
        return None
    known = network.constants[indices]
    reduction = step.kwargs.get("reduction", "none")
    old = _numbers(network.shape(x), 0)
    if step.function in GATHERS:
        return Selection((x,), step.function(old, known, **step.kwargs).reshape(-1), False)
    (new,) = updates
    if reduction == "none":
        numbers = _numbers(network.shape(new), old.numel())
        chosen = step.function(old, known, numbers, **step.kwargs)
        return Selection((x, new), chosen.reshape(-1), False)
    if reduction != "add":
        return None
    if step.function is scatter_nd:
        places = gather_nd(old, known)
    else:
        places = gather_elements(old, known, axis=step.kwargs.get("axis", 0))
    check_room(old.numel(), places.numel())
    matrix = torch.zeros(old.numel(), places.numel())
    matrix[places.reshape(-1), torch.arange(places.numel())] = 1
    return Selection((x, new), matrix, True)


def _numbers(shape: Ints, first: int) -> Tensor:
    return torch.arange(first, first + math.prod(shape)).reshape(shape)


def selected(
    x: Tensor, *rest: Tensor, dims: tuple[int | None, ...], shape: Ints, dim: int
) -> Tensor:
    """A selection for any number of samples. rest: the updates, if there are any, and the table.
    dims: where each value has its samples, None if it has none; shape: of the result for a sample,
    which gets its samples in ``dim``."""
    *updates, table = rest
    rows = [_rows(one, place) for one, place in zip((x, *updates), dims, strict=True)]
    like = next(row for row, place in zip(rows, dims, strict=True) if place is not None)
    rows = [
        row.expand(like.shape[0], -1) if place is None else row
        for row, place in zip(rows, dims, strict=True)
    ]
    if table.dim() == 2:
        found = rows[0] + F.linear(rows[1], table.to(x.dtype))
    else:
        joined = torch.cat(rows, 1) if updates else rows[0]
        found = joined.index_select(1, table)
    return found.reshape(-1, *shape[:dim], *shape[dim + 1 :]).movedim(0, dim)


def _rows(x: Tensor, dim: int | None) -> Tensor:
    """Values as (samples, elements)."""
    if dim is None:
        return x.reshape(1, -1)
    return x.movedim(dim, 0).flatten(1) if x.dim() > 1 else x.reshape(-1, 1)
