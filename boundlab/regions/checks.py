"""Checking what users hand to regions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundlab.errors import ArgumentError

Number = float | int | Tensor


def centre_tensor(x: object, what: str = "the centre of a region") -> Tensor:
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{what} must be a tensor, not {type(x).__name__}")
    if not x.is_floating_point():
        raise ArgumentError(
            f"{what} must be a floating-point tensor, not {str(x.dtype).removeprefix('torch.')}: integers (word or class indices) "
            "cannot move continuously; put the region on the embedding instead"
        )
    if torch.isnan(x).any():
        raise ArgumentError(f"{what} contains NaN")
    return x


def spread(value: Number, x: Tensor, what: str) -> Tensor:
    """A number, one per sample, or one per element, as a tensor that broadcasts against x."""
    if isinstance(value, (int, float)):
        if math.isnan(value):
            raise ArgumentError(f"{what} contains NaN")
        return torch.tensor(value, dtype=x.dtype, device=x.device)
    tensor = value.to(x) if isinstance(value, Tensor) else torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if torch.isnan(tensor).any():
        raise ArgumentError(f"{what} contains NaN")
    if tensor.dim() == 1 and x.dim() > 1 and tensor.shape[0] == x.shape[0]:
        tensor = tensor.reshape(-1, *[1] * (x.dim() - 1))
    try:
        fits = torch.broadcast_shapes(tensor.shape, x.shape) == x.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ArgumentError(
            f"{what} must be a number, one per sample ({x.shape[0] if x.dim() else 1}), or one per element {tuple(x.shape)}; "
            f"got shape {tuple(tensor.shape)}"
        )
    return tensor


def radius(eps: Number, x: Tensor) -> Tensor:
    tensor = spread(eps, x, "eps")
    if isinstance(eps, (int, float)) and eps >= 0:
        return tensor
    if (tensor < 0).any():
        raise ArgumentError(f"eps must not be negative; its smallest entry is {float(tensor.min()):g}")
    return tensor
