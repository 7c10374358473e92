"""Coefficient rows that vanish outside a window.

A row of backward mode belongs to one quantity of one sample, and often touches a small part of a
node only: a single element (identity, selected rows, a diagonal), a patch of an image, one token of
a sequence. A :class:`Window` holds just that part, as a box of the same size for all rows with a
place of its own for each; the dense form is the window that covers the whole node. Whatever a rule
cannot do on a window it does on :meth:`Window.dense`.

Windows are for nodes whose samples lie in dimension 0; all shapes below are those of one sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.coefficients.coefficients import Coefficients, pick_rows
from boundlab.coefficients.dense import PLAIN, Dense
from boundlab.kernels.reductions import product, unless_infinite
from boundlab.relaxations.interval import Interval

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


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant that rows come to in many parts: what their windows see of it is kept, for windows
    that lie alike."""

    value: Tensor
    seen: dict[Any, Tensor] = field(default_factory=dict)


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
        runs = [run and replace(run, index=change(run.index)) for run in self.runs]
        return replace(self, runs=tuple(runs))

    @property
    def moving(self) -> list[int]:
        """The dimensions along which the windows differ."""
        return [d for d, run in enumerate(self.runs) if run is not None]

    @cached_property
    def overhang(self) -> list[tuple[int, int]]:
        """By how much windows may stick out, before and behind, for each dimension."""
        found = []
        for whole, size, run in zip(self.shape, self.sizes, self.runs, strict=True):
            end = 0 if run is None else run.first + run.step * (run.count - 1) + size - whole
            found.append((0, 0) if run is None else (max(0, -run.first), max(0, end)))
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
        value = constant.value if isinstance(constant, Constant) else constant
        value = value.reshape(*[1] * (len(self.shape) + 1 - value.dim()), *value.shape)
        if all(
            value.shape[d + 1] == 1 and not (bounded and any(self.overhang[d])) for d in self.moving
        ):
            return value.unsqueeze(0)
        index, count = self._windows, math.prod(self._strided[0])
        if len(value) * count > 2 * index.numel():  # few rows: pick their windows one by one
            runs = [run.index for run in self.runs if run is not None]
            return self._all(value)[torch.arange(len(value), device=value.device), *runs]
        seen = constant.seen if isinstance(constant, Constant) and not value.requires_grad else {}
        key = (
            self.shape,
            self.sizes,
            *((run.first, run.step, run.count) if run is not None else None for run in self.runs),
        )
        flat = seen.get(key)
        if flat is None:  # many rows share a window: copy each window once
            flat = self._all(value).reshape(-1, math.prod(self.sizes))
            if flat.numel() <= KEPT:
                seen[key] = flat
        index = (
            index
            if len(value) == 1
            else index + torch.arange(len(value), device=value.device) * count
        )
        return flat.index_select(0, index.flatten()).reshape(*index.shape, *self.sizes)

    def _all(self, value: Tensor) -> Tensor:
        """All windows that there can be on a value (samples or 1, *shape or 1): (samples or 1,
        *counts, *sizes), in shared memory."""
        pads = [n for before_behind in reversed(self.overhang) for n in before_behind]
        wide = value.expand(-1, *self.shape)
        # padding keeps the channels last if they are
        wide = (F.pad(wide, pads) if any(pads) else wide).contiguous()
        counts, steps, strides, origin = self._strided
        return wide.as_strided(
            (len(wide), *counts, *self.sizes),
            (math.prod(self._padded), *steps, *strides),
            wide.storage_offset() + origin,
        )

    @cached_property
    def _strided(self) -> tuple[list[int], list[int], list[int], int]:
        """All windows that there can be, as strides of a padded node: counts and steps along the
        moving dimensions, strides of the dimensions, and where the first window begins."""
        strides = [math.prod(self._padded[d + 1 :]) for d in range(len(self.shape))]
        moving = [
            (run, strides[d], self.overhang[d][0])
            for d, run in enumerate(self.runs)
            if run is not None
        ]
        origin = sum((run.first + before) * stride for run, stride, before in moving)
        return (
            [run.count for run, _, _ in moving],
            [run.step * stride for run, stride, _ in moving],
            strides,
            origin,
        )

    @cached_property
    def _windows(self) -> Tensor:
        """Which of these windows each row of each sample has: (rows, samples)."""
        first, *rest = [run for run in self.runs if run is not None]
        index = first.index
        for run in rest:
            index = index * run.count + run.index
        return index

    def fill(self, values: Tensor, dims: Sequence[int]) -> Tensor:
        """Windows that cover the given dimensions, zero where these did not: (rows, samples, *new
        sizes)."""
        sizes = [self._padded[d] if d in dims else size for d, size in enumerate(self.sizes)]
        strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
        base = torch.zeros(values.shape[:2], dtype=torch.long, device=values.device)
        for d in dims:
            run = self.runs[d]
            if run is not None:
                base = base + (run.start + self.overhang[d][0]) * strides[d]
        offsets = torch.zeros((), dtype=torch.long, device=values.device)
        for size, stride in zip(self.sizes, strides, strict=True):
            offsets = offsets.unsqueeze(-1) + torch.arange(size, device=values.device) * stride

        blank = lambda rows: torch.zeros(
            rows, values.shape[1], math.prod(sizes), dtype=values.dtype, device=values.device
        )
        where = lambda rows: (
            2,
            base[rows].unsqueeze(2) + offsets.flatten(),
            values[rows].flatten(2),
        )

        def inside(canvas: Tensor) -> Tensor:
            canvas = canvas.reshape(*canvas.shape[:2], *sizes)
            for d in dims:
                canvas = canvas.narrow(d + 2, self.overhang[d][0], self.shape[d])
            return canvas

        if values.requires_grad:
            return inside(blank(len(values)).scatter(*where(slice(None))))
        # in parts, as indices take twice the memory of values, and what sticks out takes more
        count = max(1, INDICES // max(1, values.shape[1] * math.prod(sizes)))
        parts = [slice(i, min(i + count, len(values))) for i in range(0, len(values), count)]
        sticking_out = any(any(self.overhang[d]) for d in dims)
        whole = (
            inside(blank(len(values)))
            if not sticking_out
            else values.new_empty(
                *values.shape[:2],
                *[self.shape[d] if d in dims else size for d, size in enumerate(self.sizes)],
            )
        )
        for part in parts:
            if sticking_out:
                whole[part] = inside(blank(part.stop - part.start).scatter_(*where(part)))
            else:
                whole[part].flatten(2).scatter_(*where(part))
        return whole


@dataclass(frozen=True, eq=False)
class Window(Coefficients):
    """Coefficient rows (rows, samples, *sizes) at their places; zero elsewhere.

    ``clean``: whether the values that stick out of the node are known to be 0. They stand for
    nothing in any case.
    """

    values: Tensor
    places: Placement
    clean: bool = True

    @staticmethod
    def units(values: Tensor, chosen: Tensor, shape: Sequence[int]) -> Window:
        """One element a row: its flat position in the sample ``chosen`` and its coefficient, both
        (rows, samples)."""
        ones = (1,) * len(shape)
        return Window(
            values.reshape(*chosen.shape, *ones),
            Placement(tuple(shape), ones, tuple(unravel(chosen, shape))),
        )

    @property
    def stored(self) -> tuple[Tensor, ...]:
        return (self.values,)

    @property
    def fraction(self) -> float:
        """The size of the window relative to the node."""
        return math.prod(self.places.sizes) / max(1, math.prod(self.places.shape))

    def take(self, constant: Tensor | Constant) -> Tensor:
        """The part of a constant that belongs to the values; 0 where these stand for nothing,
        unless they are 0 themselves."""
        return self.places.take(constant, bounded=not self.clean)

    def with_values(self, values: Tensor, clean: bool = True) -> Window:
        return replace(self, values=values, clean=clean)

    def apply(self, function: Callable[[Tensor], Tensor]) -> Window:
        rows = self.zero_padded()
        return rows.with_values(function(rows.values))

    def scaled(self, constant: Tensor) -> Window:
        """Times a constant that is broadcastable to (samples, *shape), elementwise."""
        return self.with_values(self.values * self.take(constant))

    def pick(self, kept: Tensor) -> Window:
        """Some of the rows of each sample: kept (fewer rows, samples)."""
        places = self.places.reindexed(lambda index: index.gather(0, kept))
        return Window(pick_rows(self.values, kept), places, self.clean)

    def __getitem__(self, rows: slice) -> Window:
        places = self.places.reindexed(lambda index: index[rows])
        return Window(self.values[rows], places, self.clean)

    def zero_padded(self) -> Window:
        """With zeros where a window sticks out."""
        if self.clean or not any(map(any, self.places.overhang)):
            return self
        return self.scaled(
            torch.ones(
                (1,) * (len(self.places.shape) + 1),
                dtype=self.values.dtype,
                device=self.values.device,
            )
        )

    def dot(self, value: Tensor | Constant) -> Tensor:
        part = self.take(value)
        return unless_infinite(
            lambda: (self.values * part).flatten(2).sum(2),
            lambda: product(self.values, part).flatten(2).sum(2),
            value.value if isinstance(value, Constant) else value,
        )

    def over_box(self, box: Interval) -> Tensor:
        return self.dot(box.centre) - self.apply(torch.abs).dot(box.radius)

    def covering(self, dims: Sequence[int]) -> Window:
        """The same rows with windows that cover the given dimensions."""
        dims = [d for d in dims if self.places.runs[d] is not None]
        if not dims:
            return self
        p = self.places
        sizes = tuple(p.shape[d] if d in dims else size for d, size in enumerate(p.sizes))
        runs = tuple(None if d in dims else run for d, run in enumerate(p.runs))
        return Window(p.fill(self.values, dims), Placement(p.shape, sizes, runs), self.clean)

    def whole(self) -> Dense:
        return Dense(self.dense(), PLAIN, self.values.shape[1])

    def dense(self) -> Tensor:
        """(rows, samples, *shape)."""
        return self.covering(self.places.moving).values

    def by_sample(self) -> Tensor:
        return self.whole().by_sample()

    def __add__(self, other: Coefficients) -> Coefficients:
        if isinstance(other, Window):
            return self._union(other)
        first, second = self.dense(), other.dense()
        own = bool(self.places.moving)  # nobody else has what was just made dense
        if own and not first.requires_grad and not second.requires_grad:
            first.add_(second)
            return Dense(first, PLAIN, first.shape[1])
        return Dense(first + second, PLAIN, first.shape[1])

    def _union(self, other: Window) -> Window:
        """The sum, on windows that cover those of both."""
        a, b = self, other
        if a.places is b.places:
            return a.with_values(a.values + b.values, a.clean and b.clean)
        gaps = [
            _gap(first, second) for first, second in zip(a.places.runs, b.places.runs, strict=True)
        ]
        apart = [d for d, gap in enumerate(gaps) if gap is None]
        a, b = a.zero_padded().covering(apart), b.zero_padded().covering(apart)
        # the union begins with the earlier window and ends with the later one
        sizes: list[int] = []
        runs: list[Run | None] = []
        pads: tuple[list[int], list[int]] = ([], [])
        for d, gap in enumerate(gap or 0 for gap in gaps):
            m, n, run = a.places.sizes[d], b.places.sizes[d], a.places.runs[d]
            begin, end = min(0, gap), max(m, gap + n)
            pads[0][:0] = [-begin, end - m]
            pads[1][:0] = [gap - begin, end - gap - n]
            sizes.append(end - begin)
            runs.append(None if run is None else replace(run, first=run.first + begin))
        grown = [
            F.pad(w.values, pad) if any(pad) else w.values
            for w, pad in zip((a, b), pads, strict=True)
        ]
        return Window(grown[0] + grown[1], Placement(a.places.shape, tuple(sizes), tuple(runs)))


def _gap(first: Run | None, second: Run | None) -> int | None:
    """How far the second begins behind the first, if that is the same in all rows."""
    if first is None and second is None:
        return 0
    same = (
        first is not None
        and second is not None
        and first.index is second.index
        and first.step == second.step
    )
    return second.first - first.first if same else None  # type: ignore[union-attr]


def unravel(flat: Tensor, shape: Sequence[int]) -> list[Run]:
    """Flat positions as one run for each dimension."""
    found: list[Run] = []
    for size in reversed(shape):
        found.insert(0, Run(flat % size if len(shape) > 1 else flat, size))
        flat = flat // size
    return found
