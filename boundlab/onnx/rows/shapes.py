"""Views: the same elements in another shape or order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.errors import ArgumentError, UnsupportedOperator
from boundlab.onnx.table import MOST_DIMS, Ints, check_room, row, shortened


def view(x: Tensor, shape: Ints) -> Tensor:
    """All elements in their order in another shape, of which one size may be -1. What flatten,
    squeeze and unsqueeze become once shapes are known (:mod:`boundlab.onnx.batching`)."""
    # whether strides would do without a copy can depend on the number of samples, and torch.export
    # would note an assumption of it
    return x.clone(memory_format=torch.contiguous_format).reshape(shape)


@row("Reshape")
def reshape(x: Tensor, shape: Ints, *, allowzero: int = 0) -> Tensor:
    """A size 0 is that of x in the same place, unless zeros are allowed."""
    if allowzero:
        return x.reshape(shape)
    sizes = [x.shape[place] if size == 0 else size for place, size in enumerate(shape)]
    return x.reshape(sizes)


@row("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """To a matrix: the dimensions before axis, and the others."""
    if not -x.dim() <= axis <= x.dim():
        raise ArgumentError(f"there is no axis {axis} among {x.dim()}")
    if axis < 0:
        axis += x.dim()
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@row("Squeeze")
def squeeze(x: Tensor, axes: Ints | None = None) -> Tensor:
    if axes is None:
        return x.reshape([size for size in x.shape if size != 1])
    gone = axes_of(axes, x.dim())
    if any(x.shape[axis] != 1 for axis in gone):
        raise ArgumentError(f"axes {axes} of {tuple(x.shape)} do not all have size 1")
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in gone])


@row("Unsqueeze")
def unsqueeze(x: Tensor, axes: Ints) -> Tensor:
    new = axes_of(axes, x.dim() + len(axes))
    sizes = iter(x.shape)
    total = x.dim() + len(axes)
    return x.reshape([1 if axis in new else next(sizes) for axis in range(total)])


def axes_of(axes: Sequence[int], rank: int) -> list[int]:
    """Axes counted from the front; an error if one is none, or named twice."""
    if rank > MOST_DIMS:
        raise ArgumentError(f"{rank} dimensions are too many")
    for axis in axes:
        if not -rank <= axis < rank:
            raise ArgumentError(f"there is no axis {axis} among {rank}")
    found = [axis % rank for axis in axes]
    if len(set(found)) < len(found):
        raise ArgumentError(f"an axis is named twice: {shortened(str(tuple(axes)))}")
    return found


@row("Transpose")
def transpose(x: Tensor, *, perm: Ints | None = None) -> Tensor:
    order = tuple(reversed(range(x.dim()))) if perm is None else perm
    return x.permute(order)


@row("Expand")
def expand(x: Tensor, shape: Ints) -> Tensor:
    """Broadcast against a shape, which may have sizes 1 where x has more."""
    missing = len(shape) - x.dim()
    sizes = (*[1] * -missing, *shape)
    # -1 leaves a size as it is: a comparison of it would be an assumption of the number of samples
    kept = [place >= missing and size == 1 for place, size in enumerate(sizes)]
    return x.expand([-1 if keep else size for keep, size in zip(kept, sizes, strict=True)])


@row("Tile")
def tile(x: Tensor, repeats: Ints) -> Tensor:
    return x.repeat(repeats)


@row("Concat")
def concat(*values: Tensor, axis: int = 1) -> Tensor:
    return torch.cat(values, axis)


@row("Split")
def split(
    x: Tensor,
    split: Ints | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    n_outputs: int,
) -> tuple[Tensor, ...]:
    """Into parts of given sizes, or of equal ones, the last of which may be smaller."""
    if split is not None:
        return tuple(x.split(split, axis))
    count = num_outputs or n_outputs
    return tuple(x.split(-(-x.shape[axis] // count), axis))


@row("Pad")
def pad_by_attributes(
    x: Tensor, *, pads: Ints, mode: str = "constant", value: float = 0.0
) -> Tensor:
    return pad(x, pads, value, mode=mode)


@row("Pad", since=11)
def pad(
    x: Tensor,
    pads: Ints,
    constant_value: float | None = None,
    axes: Ints | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """Elements added, or taken away where a number is negative, before and behind each axis."""
    rank = x.dim()
    padded = axes_of(axes if axes is not None else range(rank), rank)
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(padded):
        before[axis], after[axis] = pads[place], pads[place + len(padded)]
    if mode == "constant":
        sizes = [size for axis in reversed(range(rank)) for size in (before[axis], after[axis])]
        while len(sizes) > 2 and sizes[-2:] == [0, 0]:  # the batch is not padded
            sizes = sizes[:-2]
        return F.pad(x, sizes, value=constant_value or 0.0)
    for axis in range(rank):
        if before[axis] or after[axis]:
            places = _places(mode, x.shape[axis], before[axis], after[axis])
            x = x.index_select(axis, places.to(x.device))
    return x


def _places(mode: str, size: int, before: int, after: int) -> Tensor:
    """Which elements of an axis a padded one has."""
    if mode not in ("edge", "reflect", "wrap"):
        raise UnsupportedOperator(f"it pads by {mode!r}")
    check_room(max(size + before + after, 0))
    places = torch.arange(-before, size + after)
    if mode == "edge":
        return places.clamp(0, size - 1)
    if mode == "wrap":
        return places.remainder(size)
    period = max(2 * (size - 1), 1)
    places = places.remainder(period)
    return torch.minimum(places, period - places)


@row("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    channels = x.shape[1] // blocksize**2
    parts = x.unflatten(1, (blocksize, blocksize, channels))
    return parts.permute(0, 3, 4, 1, 5, 2).flatten(4).flatten(2, 3)


@row("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    parts = x.unflatten(3, (-1, blocksize)).unflatten(2, (-1, blocksize))
    if mode == "CRD":
        return parts.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
    return parts.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)


@row("Trilu")
def trilu(x: Tensor, k: int = 0, *, upper: int = 1) -> Tensor:
    return torch.triu(x, k) if upper else torch.tril(x, k)


@row("CenterCropPad")
def center_crop_pad(x: Tensor, shape: Ints, *, axes: Ints | None = None) -> Tensor:
    """Cut or fill with zeros evenly on both sides; what is odd is more behind."""
    for axis, wanted in zip(axes_of(axes or range(x.dim()), x.dim()), shape, strict=True):
        size = x.shape[axis]
        missing = wanted - size
        if missing < 0:
            x = x.narrow(axis, (size - wanted) // 2, wanted)
        elif missing > 0:
            sizes = [0, 0] * (x.dim() - axis - 1) + [missing // 2, missing - missing // 2]
            x = F.pad(x, sizes)
    return x
