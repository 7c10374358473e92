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
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients, pick_rows
from boundlab.coefficients.dense import PLAIN, Dense
from boundlab.coefficients.placement import Constant, Placement, Run, pad, tensor_of, unravel
from boundlab.kernels.reductions import product, unless_infinite
from boundlab.relaxations.interval import Interval


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
        ones = (1,) * (len(self.places.shape) + 1)
        inside = torch.ones(ones, dtype=self.values.dtype, device=self.values.device)
        return self.scaled(inside)

    def dot(self, value: Tensor | Constant) -> Tensor:
        part = self.take(value)
        return unless_infinite(
            lambda: _sums(self.values * part),
            lambda: _sums(product(self.values, part)),
            tensor_of(value),
        )

    def over_box(self, box: Interval) -> Tensor:
        return self.dot(box.centre) - self.apply(torch.abs).dot(box.reach_of_ends)

    def covering(self, dims: Sequence[int]) -> Window:
        """The same rows with windows that cover the given dimensions."""
        dims = [d for d in dims if self.places.runs[d] is not None]
        if not dims:
            return self
        values = self.places.fill(self.values, dims)
        return Window(values, self.places.covering(dims), self.clean)

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
        both_runs = zip(a.places.runs, b.places.runs, strict=True)
        gaps = [_gap(first, second) for first, second in both_runs]
        apart = [d for d, gap in enumerate(gaps) if gap is None]
        a, b = a.zero_padded().covering(apart), b.zero_padded().covering(apart)
        # the union begins with the earlier window and ends with the later one
        sizes: list[int] = []
        runs = list(a.places.runs)
        pads_a: list[int] = []
        pads_b: list[int] = []
        for d, gap in enumerate(gap or 0 for gap in gaps):
            m, n = a.places.sizes[d], b.places.sizes[d]
            begin, end = min(0, gap), max(m, gap + n)
            # padding counts dimensions from the last one on
            pads_a = [-begin, end - m, *pads_a]
            pads_b = [gap - begin, end - gap - n, *pads_b]
            sizes.append(end - begin)
            run = runs[d]
            if run is not None:
                runs[d] = run.moved(begin)
        places = Placement(a.places.shape, tuple(sizes), tuple(runs))
        return Window(pad(a.values, pads_a) + pad(b.values, pads_b), places)


def _sums(terms: Tensor) -> Tensor:
    """(rows, samples, *window) -> (rows, samples); the window of a single number has no
    dimensions."""
    return terms.unsqueeze(2).flatten(2).sum(2)


def _gap(first: Run | None, second: Run | None) -> int | None:
    """How far the second begins behind the first, if that is the same in all rows."""
    if first is None and second is None:
        return 0
    if first is None or second is None:
        return None
    if first.index is not second.index or first.step != second.step:
        return None
    return second.first - first.first
