"""Checking what users hand to regions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundlab.errors import ArgumentError

Number = float | int | Tensor


def centre_tensor(x: object, what: str = "the centre of a region") -> Tensor:
    """A floating-point tensor without NaN."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{what} must be a tensor, not {type(x).__name__}")
    if not x.is_floating_point():
        advice = (
            "integers (word or class indices) cannot move continuously; put the region on the "
            "embedding instead"
        )
        if x.dtype == torch.uint8:
            advice = "of images in bytes give x.float() / 255, and eps as a share of 1"
        raise ArgumentError(
            f"{what} must be a floating-point tensor, not "
            f"{str(x.dtype).removeprefix('torch.')}: {advice}"
        )
    check_has_values(x, what)
    if torch.isnan(x).any():
        raise ArgumentError(f"{what} contains NaN")
    return x


def check_has_values(x: Tensor, what: str) -> None:
    """Refuse a tensor that has a shape only."""
    if x.is_meta:
        raise ArgumentError(
            f"{what} lies on the device 'meta', which holds no values: put it where the model is"
        )


def given(x: Tensor | None) -> Tensor:
    """The centre of a region that has one."""
    if x is None:
        raise ArgumentError(
            "this region has no centre: give it one, or use it in perturb={...} where it sits on "
            "the parameter's value"
        )
    return x


def spread(value: Number, x: Tensor, what: str) -> Tensor:
    """A number, one per sample, or a tensor with the dimensions of x, as a tensor that broadcasts
    against x.

    A tensor with one dimension is one per sample, whatever else its length may fit.
    """
    if isinstance(value, (int, float)):
        if math.isnan(value):
            raise ArgumentError(f"{what} contains NaN")
        return torch.tensor(value, dtype=x.dtype, device=x.device)
    tensor = _numbers(value, x, what)
    if torch.isnan(tensor).any():
        raise ArgumentError(f"{what} contains NaN")
    if tensor.dim() == 1 and x.dim() and tensor.shape[0] == x.shape[0]:
        return tensor.reshape(-1, *[1] * (x.dim() - 1))
    if tensor.dim() > 0 and not _broadcasts(tensor, x):
        raise ArgumentError(_shapes(what, tensor, x))
    return tensor


def _broadcasts(tensor: Tensor, x: Tensor) -> bool:
    """Whether a tensor with all dimensions of x, more than one, broadcasts to it."""
    if x.dim() < 2 or tensor.dim() != x.dim():
        return False
    return all(a in (1, b) for a, b in zip(tensor.shape, x.shape, strict=True))


def _numbers(value: object, x: Tensor, what: str) -> Tensor:
    """A value as a tensor like x, of its own shape."""
    try:
        if isinstance(value, Tensor):
            return value.to(x)
        return torch.as_tensor(value, dtype=x.dtype, device=x.device)
    except (TypeError, ValueError, RuntimeError):
        advice = ": write 8/255 without quotes" if isinstance(value, str) else ""
        raise ArgumentError(
            f"{what} must be a number or a tensor of numbers, not {value!r}{advice}"
        ) from None


def _shapes(what: str, given: Tensor, x: Tensor) -> str:
    """What shapes there are, beside the one that was given."""
    if x.dim() < 2:
        return (
            f"{what} must be a number or have the shape {tuple(x.shape)} of the value; got shape "
            f"{tuple(given.shape)}"
        )
    a_sample = (x.shape[0],)
    a_feature = (1,) * (x.dim() - 1) + (x.shape[-1],)
    return (
        f"{what} must be a number; or one per sample, a tensor of shape {a_sample}; or a tensor "
        f"with {x.dim()} dimensions that broadcasts to {tuple(x.shape)}, such as {a_feature} for "
        f"one per entry of the last dimension; got shape {tuple(given.shape)}"
    )


def radius(eps: Number, x: Tensor) -> Tensor:
    """Radii that are not negative, broadcastable against x."""
    tensor = spread(eps, x, "eps")
    if isinstance(eps, (int, float)) and eps >= 0:
        return tensor
    if (tensor < 0).any():
        raise ArgumentError(
            f"eps must not be negative; its smallest entry is {float(tensor.min()):g}"
        )
    return tensor
