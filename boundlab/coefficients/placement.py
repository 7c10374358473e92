"""Where windows lie in a node, and what they see of a constant there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

INDICES = 1 << 18
"""How many values are put in their places at once."""
KEPT = 1 << 18
"""Of so many numbers at most what windows see of a constant is kept."""


@dataclass(frozen=True, eq=False)
class Run:
    """Where windows begin along one dimension: at ``first + step * index``, with 0 <= index <
    count, (rows, samples)."""

    index: Tensor
    count: int
    first: int = 0
    step: int = 1

    @property
    def start(self) -> Tensor:
        return self.index * self.step + self.first

    def through(self, stride: int, padding: int) -> Run:
        """Along the argument of a convolution, for windows along its result."""
        return replace(self, first=self.first * stride - padding, step=self.step * stride)

    def moved(self, by: int) -> Run:
        """Of windows that begin so much later."""
        return replace(self, first=self.first + by)

    def overhang(self, size: int, whole: int) -> tuple[int, int]:
        """By how much windows of a size may stick out of a dimension, before and behind."""
        end = self.first + self.step * (self.count - 1) + size
        return max(0, -self.first), max(0, end - whole)


Key = tuple[object, ...]
"""What windows that lie alike have in common."""


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant that rows come to in many parts: what their windows see of it is kept, for windows
    that lie alike."""

    value: Tensor
    seen: dict[Key, Tensor] = field(default_factory=dict)


def tensor_of(constant: Tensor | Constant) -> Tensor:
    if isinstance(constant, Constant):
        return constant.value
    return constant


def pad(values: Tensor, pads: Sequence[int]) -> Tensor:
    """Zeros around the last dimensions, as many as ``F.pad`` takes them."""
    if not any(pads):
        return values
    return F.pad(values, pads)


class Strided(NamedTuple):
    """All windows that there can be, as strides of a padded node: counts and steps along the moving
    dimensions, strides of all dimensions, and where the first window begins."""

    counts: list[int]
    steps: list[int]
    strides: list[int]
    origin: int


@dataclass(frozen=True, eq=False)
class Canvas:
    """Rows of larger windows, of ``size`` elements each, that values (rows, samples, *sizes) are
    put on.

    first: (rows, samples), the flat place of the first value of each row; offsets: (values of a
    row,), how far behind it the others lie.
    """

    values: Tensor
    size: int
    first: Tensor
    offsets: Tensor

    def blank(self, rows: int) -> Tensor:
        """(rows, samples, size)."""
        samples = self.values.shape[1]
        dtype, device = self.values.dtype, self.values.device
        return torch.zeros(rows, samples, self.size, dtype=dtype, device=device)

    def put(self, rows: slice) -> tuple[int, Tensor, Tensor]:
        """What ``scatter`` needs for some rows: the dimension, the places and the values."""
        return 2, self.first[rows].unsqueeze(2) + self.offsets, self.values[rows].flatten(2)


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the windows of some rows lie in a node of shape ``shape``.

    sizes: of all windows. runs: for each dimension where they begin, or None where they cover all
    of it. A window may stick out of the node (into the padding of a convolution).
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    runs: tuple[Run | None, ...]

    def __post_init__(self) -> None:
        assert len(self.shape) == len(self.sizes) == len(self.runs)
        assert all(
            run is not None or size == whole
            for run, size, whole in zip(self.runs, self.sizes, self.shape, strict=True)
        )

    def reindexed(self, change: Callable[[Tensor], Tensor]) -> Placement:
        """The windows of other rows: change takes the indices (rows, samples) of the runs."""
        runs = list(self.runs)
        for d, run in self._moving_runs:
            runs[d] = replace(run, index=change(run.index))
        return replace(self, runs=tuple(runs))

    @property
    def moving(self) -> list[int]:
        """The dimensions along which the windows differ."""
        return [d for d, _ in self._moving_runs]

    @property
    def _moving_runs(self) -> list[tuple[int, Run]]:
        return [(d, run) for d, run in enumerate(self.runs) if run is not None]

    @cached_property
    def overhang(self) -> list[tuple[int, int]]:
        """By how much windows may stick out, before and behind, for each dimension."""
        found = [(0, 0)] * len(self.shape)
        for d, run in self._moving_runs:
            found[d] = run.overhang(self.sizes[d], self.shape[d])
        return found

    @cached_property
    def _padded(self) -> list[int]:
        return [
            before + n + behind
            for n, (before, behind) in zip(self.shape, self.overhang, strict=True)
        ]

    def take(self, constant: Tensor | Constant, bounded: bool = True) -> Tensor:
        """The part of a constant that each window sees: broadcastable to (rows, samples, *sizes).

        constant: broadcastable to (samples, *shape). bounded: it counts as 0 outside of the node;
        else it may be anything.
        """
        value = tensor_of(constant)
        value = value.reshape(*[1] * (len(self.shape) + 1 - value.dim()), *value.shape)
        if self._see_alike(value, bounded):
            return value.unsqueeze(0)
        index = self._windows
        count = math.prod(self._strided.counts)
        if len(value) * count > 2 * index.numel():  # few rows: pick their windows one by one
            samples = torch.arange(len(value), device=value.device)
            return self._all(value)[samples, *[run.index for _, run in self._moving_runs]]
        flat = self._each_once(constant, value)
        if len(value) != 1:
            index = index + torch.arange(len(value), device=value.device) * count
        return flat.index_select(0, index.flatten()).reshape(*index.shape, *self.sizes)

    def _see_alike(self, value: Tensor, bounded: bool) -> bool:
        """Whether all windows see the same of a value (samples or 1, *shape or 1)."""
        if any(value.shape[d + 1] != 1 for d in self.moving):
            return False
        return not bounded or not any(any(self.overhang[d]) for d in self.moving)

    def _each_once(self, constant: Tensor | Constant, value: Tensor) -> Tensor:
        """All windows that there can be on a value, for many rows that share them: (samples or 1 *
        windows, elements of one). Those of a :class:`Constant` are kept, if they are few."""
        size = math.prod(self.sizes)
        if not isinstance(constant, Constant) or value.requires_grad:
            return self._all(value).reshape(-1, size)
        runs = [(d, run.first, run.step, run.count) for d, run in self._moving_runs]
        key = (self.shape, self.sizes, *runs)
        flat = constant.seen.get(key)
        if flat is None:
            flat = self._all(value).reshape(-1, size)
            if flat.numel() <= KEPT:
                constant.seen[key] = flat
        return flat

    def _all(self, value: Tensor) -> Tensor:
        """All windows that there can be on a value (samples or 1, *shape or 1): (samples or 1,
        *counts, *sizes), in shared memory."""
        pads = [n for before_behind in reversed(self.overhang) for n in before_behind]
        wide = value.expand(-1, *self.shape)
        wide = pad(wide, pads).contiguous()  # padding keeps the channels last if they are
        counts, steps, strides, origin = self._strided
        return wide.as_strided(
            (len(wide), *counts, *self.sizes),
            (math.prod(self._padded), *steps, *strides),
            wide.storage_offset() + origin,
        )

    @cached_property
    def _strided(self) -> Strided:
        strides = _contiguous_strides(self._padded)
        counts, steps = [], []
        origin = 0
        for d, run in self._moving_runs:
            before, _ = self.overhang[d]
            counts.append(run.count)
            steps.append(run.step * strides[d])
            origin += (run.first + before) * strides[d]
        return Strided(counts, steps, strides, origin)

    @cached_property
    def _windows(self) -> Tensor:
        """Which of these windows each row of each sample has: (rows, samples)."""
        first, *rest = [run for _, run in self._moving_runs]
        index = first.index
        for run in rest:
            index = index * run.count + run.index
        return index

    def covering(self, dims: Sequence[int]) -> Placement:
        """Of windows that cover the given dimensions."""
        runs = list(self.runs)
        for d in dims:
            runs[d] = None
        return Placement(self.shape, self._sizes_with(dims, self.shape), tuple(runs))

    def _sizes_with(self, dims: Sequence[int], whole: Sequence[int]) -> tuple[int, ...]:
        """The sizes of windows that cover the given dimensions of a node of shape ``whole``."""
        sizes = list(self.sizes)
        for d in dims:
            sizes[d] = whole[d]
        return tuple(sizes)

    def fill(self, values: Tensor, dims: Sequence[int]) -> Tensor:
        """Windows that cover the given dimensions, zero where these did not: (rows, samples, *new
        sizes)."""
        sizes = self._sizes_with(dims, self._padded)
        canvas = self._canvas(values, dims, sizes)

        def inside(filled: Tensor) -> Tensor:
            """(rows, samples, elements) without what sticks out: (rows, samples, *new sizes)."""
            filled = filled.reshape(*filled.shape[:2], *sizes)
            for d in dims:
                filled = filled.narrow(d + 2, self.overhang[d][0], self.shape[d])
            return filled

        rows, samples = values.shape[:2]
        if values.requires_grad:
            return inside(canvas.blank(rows).scatter(*canvas.put(slice(None))))
        # in parts, as indices take twice the memory of values, and what sticks out takes more
        count = max(1, INDICES // max(1, samples * canvas.size))
        parts = [slice(i, min(i + count, rows)) for i in range(0, rows, count)]
        if any(any(self.overhang[d]) for d in dims):
            whole = values.new_empty(rows, samples, *self._sizes_with(dims, self.shape))
            for part in parts:
                blank = canvas.blank(part.stop - part.start)
                whole[part] = inside(blank.scatter_(*canvas.put(part)))
            return whole
        filled = canvas.blank(rows)
        for part in parts:
            filled[part].scatter_(*canvas.put(part))
        return inside(filled)

    def _canvas(self, values: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Canvas:
        """Windows of these sizes, which cover the given dimensions and what sticks out of them."""
        strides = _contiguous_strides(sizes)
        first = torch.zeros(values.shape[:2], dtype=torch.long, device=values.device)
        for d in dims:
            run = self.runs[d]
            if run is not None:
                first = first + (run.start + self.overhang[d][0]) * strides[d]
        offsets = torch.zeros((), dtype=torch.long, device=values.device)
        for size, stride in zip(self.sizes, strides, strict=True):
            offsets = offsets.unsqueeze(-1) + torch.arange(size, device=values.device) * stride
        return Canvas(values, math.prod(sizes), first, offsets.flatten())


def _contiguous_strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]


def unravel(flat: Tensor, shape: Sequence[int]) -> list[Run]:
    """Flat positions as one run for each dimension."""
    if len(shape) == 1:
        return [Run(flat, shape[0])]
    found: list[Run] = []
    for size in reversed(shape):
        found.insert(0, Run(flat % size, size))
        flat = flat // size
    return found
