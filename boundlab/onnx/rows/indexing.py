"""Elements picked, put and sorted."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.errors import ArgumentError, UnsupportedOperator
from boundlab.onnx.rows.shapes import axes_of
from boundlab.onnx.table import Ints, check_room, row


@row("Slice")
def slice_(
    x: Tensor,
    starts: Ints,
    ends: Ints,
    axes: Ints | None = None,
    steps: Ints | None = None,
) -> Tensor:
    """From start to end by a step, which may be negative, along each of the axes."""
    places = axes_of(axes if axes is not None else range(len(starts)), x.dim())
    for place, axis in enumerate(places):
        step = 1 if steps is None else steps[place]
        if step == 0:
            raise ArgumentError("a step is 0")
        x = _sliced(x, axis, slice(starts[place], ends[place], step))
    return x


def _sliced(x: Tensor, axis: int, part: slice) -> Tensor:
    chosen = range(x.shape[axis])[part]
    if len(chosen) == x.shape[axis] and part.step > 0:
        return x
    if not chosen:
        return x.narrow(axis, 0, 0)
    if chosen.step < 0:
        first = chosen[-1]
        piece = x[(slice(None),) * axis + (slice(first, chosen[0] + 1, -chosen.step),)]
        return piece.flip(axis)
    return x[(slice(None),) * axis + (slice(chosen.start, chosen.stop, chosen.step),)]


@row("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Slices of x along an axis; negative indices count from behind."""
    (axis,) = axes_of([axis], x.dim())
    found = _positive(indices, x.shape[axis])
    if found.dim() == 0:
        return x.index_select(axis, found.reshape(1)).squeeze(axis)
    if found.dim() == 1:
        return x.index_select(axis, found)
    return x[(slice(None),) * axis + (found,)]


@row("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, _positive(indices, x.shape[axis]))


@row("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    depth = indices.shape[-1]
    found = [_positive(indices[..., place], x.shape[batch_dims + place]) for place in range(depth)]
    rank = indices.dim() - 1
    batch = []
    for axis in range(batch_dims):
        numbers = torch.arange(x.shape[axis], device=x.device)
        batch.append(numbers.reshape([-1 if place == axis else 1 for place in range(rank)]))
    return x[(*batch, *found)]


def _positive(indices: Tensor, size: int) -> Tensor:
    return torch.where(indices < 0, indices + size, indices).to(torch.int64)


@row("Scatter", "ScatterElements")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    found = _positive(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, found, updates)
    return x.scatter_reduce(axis, found, updates, _reduction(reduction), include_self=True)


@row("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    places = tuple(_positive(indices[..., place], x.shape[place]) for place in range(depth))
    if reduction in ("none", "add"):
        return x.index_put(places, updates, accumulate=reduction == "add")
    size = x.shape[:depth].numel()
    flat = torch.zeros_like(places[0])
    for place, index in enumerate(places):
        flat = flat * x.shape[place] + index
    rows = x.reshape(size, -1)
    values = updates.reshape(flat.numel(), -1)
    index = flat.reshape(-1, 1).expand(values.shape)
    found = rows.scatter_reduce(0, index, values, _reduction(reduction), include_self=True)
    return found.reshape(x.shape)


def _reduction(name: str) -> str:
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    if name not in names:
        raise UnsupportedOperator(f"its reduction {name!r} is not known")
    return names[name]


@row("OneHot")
def one_hot(indices: Tensor, depth: int, values: Tensor, *, axis: int = -1) -> Tensor:
    """values: what stands for off and on."""
    classes = torch.arange(int(depth), device=indices.device)
    found = _positive(indices, int(depth)).unsqueeze(-1) == classes
    chosen = torch.where(found, values[1], values[0])
    return chosen.movedim(-1, axis % chosen.dim())


@row("Compress")
def compress(x: Tensor, condition: Ints, *, axis: int | None = None) -> Tensor:
    chosen = [place for place, keep in enumerate(condition) if keep]
    kept = torch.tensor(chosen, dtype=torch.int64, device=x.device)
    if axis is None:
        return x.reshape(-1).index_select(0, kept)
    return x.index_select(axis, kept)


@row("NonZero")
def non_zero(x: Tensor) -> Tensor:
    check_room(x.numel(), x.dim())
    return torch.nonzero(x).t()


@row("ArgMax")
def argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    if not select_last_index:
        return torch.argmax(x, axis, bool(keepdims))
    return x.shape[axis] - 1 - torch.argmax(x.flip(axis), axis, bool(keepdims))


@row("ArgMin")
def argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    if not select_last_index:
        return torch.argmin(x, axis, bool(keepdims))
    return x.shape[axis] - 1 - torch.argmin(x.flip(axis), axis, bool(keepdims))


@row("TopK")
def top_k(
    x: Tensor, k: int, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """Of equal elements the first comes first, whether the result must be sorted or not."""
    found = torch.sort(x, stable=True, dim=axis, descending=bool(largest))
    return found.values.narrow(axis, 0, int(k)), found.indices.narrow(axis, 0, int(k))


@row("ReverseSequence")
def reverse_sequence(
    x: Tensor, sequence_lens: Ints, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    parts = []
    for place, length in enumerate(sequence_lens):
        one = x.narrow(batch_axis, place, 1)
        head = one.narrow(time_axis, 0, length).flip(time_axis)
        tail = one.narrow(time_axis, length, one.shape[time_axis] - length)
        parts.append(torch.cat([head, tail], time_axis))
    return torch.cat(parts, batch_axis)
