"""Settings of operators that name dimensions or a type, or give one number for each dimension."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Each = int | Sequence[int]
"""A setting with one number for each dimension, or one for all of them."""
Dims = int | list[int] | tuple[int, ...] | None
"""An argument that names dimensions; None: all of them."""


def dimensions(given: Dims, count: int) -> list[int]:
    """The dimensions that an argument names, of ``count``, as sorted numbers from 0; None and an
    empty list stand for all of them."""
    if count == 0:
        return []
    if isinstance(given, int):
        given = [given]
    return sorted({d % count for d in given or range(count)})


def each(value: Each, dims: int) -> list[int]:
    """One number for each of ``dims`` dimensions; a single one stands for all of them."""
    if isinstance(value, int):
        return [value] * dims
    if len(value) == 1:
        return list(value) * dims
    return list(value)


def in_type(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """x in the type that an argument names; None: its own."""
    if dtype is None:
        return x
    return x.to(dtype)
