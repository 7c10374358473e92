"""Discrete Fourier transforms as matrices of cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

ROUNDED = 1e-15
"""What is smaller is 0: the sine of pi is not, in floating point."""


def turns(rows: int, columns: int, size: int) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi j k / size, (rows, columns) in float64. Whole turns are taken off jk
    first, so that large products lose no digits."""
    count = torch.arange(rows).unsqueeze(1) * torch.arange(columns) % size
    angle = count.double() * (2 * math.pi / size)
    return _clean(angle.cos()), _clean(angle.sin())


def _clean(values: Tensor) -> Tensor:
    return torch.where(values.abs() < ROUNDED, 0, values)


def half_weights(size: int) -> Tensor:
    """How often each frequency of a real signal's half spectrum counts, (size // 2 + 1,): those
    whose mirror image is left out count twice."""
    weights = torch.full((size // 2 + 1,), 2.0, dtype=torch.float64)
    weights[0] = 1
    if size % 2 == 0:
        weights[-1] = 1
    return weights


def scale(mode: int, sizes: Sequence[int]) -> float:
    """The factor of a transform over dimensions of these sizes. mode: torch's number for it, 0:
    none, 1: one over the root of the number of elements, 2: one over that number."""
    return math.prod(sizes) ** (-mode / 2)
