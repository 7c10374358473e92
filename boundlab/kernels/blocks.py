"""Steps that training spends its memory traffic on, with gradients written out.

Autograd makes a pass over the memory for every elementary operation and its gradient. For intervals
and ReLUs these passes cost as much as the convolutions between them; written as one step each they
take a third of them. Where caches are small a step is made for a few samples at a time: what it
makes on the way then stays in the cache, in memory that is used again and again instead of being
asked of the system.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Placement = tuple[Tensor | None, ...]
"""Where a step is to write its results; None: it makes them."""
BLOCK = {"cpu": 1 << 17}
"""How many numbers of a tensor a step works on at once, where caches are small; elsewhere on
all."""


def by_samples(
    step: Callable[..., tuple[Tensor, ...]], dim: int, shapes: tuple[Tensor, ...], *tensors: Tensor
) -> tuple[Tensor, ...]:
    """``step(places, *tensors)``, made for a few samples at a time, which writes its results to the
    places: tensors like ``shapes``, or None where it is to make them itself. All have the samples,
    or what else there is in its place, in the dimension ``dim``."""
    largest = max(tensors, key=Tensor.numel)
    block = BLOCK.get(largest.device.type, largest.numel())
    samples = 1
    if largest.dim() > dim:
        samples = largest.shape[dim]
    if largest.numel() <= 4 * block or samples == 1 or torch.is_grad_enabled():
        return step((None,) * len(shapes), *tensors)
    size = max(1, block * samples // largest.numel())
    whole = tuple(torch.empty_like(shape) for shape in shapes)
    given = [tensor.split(size, dim) for tensor in tensors]
    for places, *parts in zip(_parts(size, dim, whole), *given, strict=True):
        step(places, *parts)
    return whole


def _parts(size: int, dim: int, tensors: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
    """The tensors, so many samples at a time."""
    return list(zip(*(tensor.split(size, dim) for tensor in tensors), strict=True))


def alike(values: Tensor, like: Tensor) -> Tensor:
    """The values with their dimensions in the order in memory that those of another tensor of the
    same shape have: working on both together takes several times as long else."""
    if values.stride() == like.stride():
        return values
    return torch.empty_like(like, dtype=values.dtype).copy_(values)
