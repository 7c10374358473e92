"""Coefficients of values that were broadcast: undoing it, and doing it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def sum_to(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """Undo broadcasting behind the leading dimension: (rows, *big) -> (rows, *shape)."""
    if tuple(rows.shape[1:]) == tuple(shape):
        return rows
    extra = rows.dim() - 1 - len(shape)
    if extra:
        rows = rows.sum(dim=tuple(range(1, 1 + extra)))
    sizes = zip(rows.shape[1:], shape, strict=True)
    shrunk = [dim for dim, (have, want) in enumerate(sizes, start=1) if have != want]
    if not shrunk:
        return rows
    return rows.sum(dim=shrunk, keepdim=True)


def sum_per_sample(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """Undo broadcasting of a value without samples, sample by sample: (rows, samples, *big) ->
    (rows, samples, *shape)."""
    ndim = rows.dim() - 2
    missing, extra = max(0, ndim - len(shape)), max(0, len(shape) - ndim)
    wide = [1] * missing + list(shape)[extra:]  # a 1 may stand for the samples: it is extra
    return sum_to(rows.flatten(0, 1), wide).reshape(*rows.shape[:2], *shape)


def undo_broadcasting(rows: Tensor, shape: Sequence[int], per_sample: bool) -> Tensor:
    """:func:`sum_per_sample`, or :func:`sum_to`."""
    if per_sample:
        return sum_per_sample(rows, shape)
    return sum_to(rows, shape)


def one_a_sample(rows: Tensor, shapes: Sequence[torch.Size], shared: set[int]) -> bool:
    """Whether a value without samples has an entry for each of them all the same (a weight that was
    expanded to the batch)."""
    return any(len(shapes[k]) == rows.dim() - 1 and shapes[k][0] != 1 for k in shared)


def align(form: Tensor, ndim: int) -> Tensor:
    """(columns, *shape) with ones put in so that ``shape`` broadcasts against a value of ``ndim``
    dimensions."""
    return form.reshape(form.shape[0], *[1] * (ndim + 1 - form.dim()), *form.shape[1:])
