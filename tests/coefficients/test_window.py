"""The algebra of rows that vanish outside a window, against the dense rows written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from boundlab.coefficients.placement import Constant, Placement, Run, unravel
from boundlab.coefficients.window import Window
from boundlab.rules.windows import _groups, _reshaped
from tests.helpers.watching import Operators

# -- the algebra -----------------------------------------------------------------------------------


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Any window, some of it outside of the node, with junk there unless it is clean."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    rows, samples = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    sizes: list[int] = []
    runs: list[Run | None] = []
    for whole in shape:
        if draw(st.booleans()):
            sizes.append(whole)
            runs.append(None)
            continue
        size, count, step = (
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
            draw(st.integers(1, 2)),
        )
        sizes.append(size)
        runs.append(
            Run(
                torch.randint(0, count, (rows, samples), generator=generator),
                count,
                draw(st.integers(-3, 2)),
                step,
            )
        )
    values = torch.randn(rows, samples, *sizes, generator=generator, dtype=torch.float64)
    return Window(values, Placement(shape, tuple(sizes), tuple(runs)), clean=False)


def dense_by_hand(window: Window) -> Tensor:
    """The dense rows, element by element."""
    places = window.places
    dense = torch.zeros(*window.values.shape[:2], *places.shape, dtype=window.values.dtype)
    for at in (
        torch.cartesian_prod(*[torch.arange(n) for n in window.values.shape])
        .reshape(-1, window.values.dim())
        .tolist()
    ):
        r, b, *inner = at
        where = [
            i if run is None else i + int(run.start[r, b])
            for i, run in zip(inner, places.runs, strict=True)
        ]
        if all(0 <= i < n for i, n in zip(where, places.shape, strict=True)):
            dense[(r, b, *where)] += window.values[tuple(at)]
    return dense


@settings(deadline=None)
@given(windows(), st.integers(1, 4))
def test_dense_in_parts(window: Window, rows: int) -> None:
    """Windows are put in their places some rows at a time."""
    places = window.places
    canvas = math.prod(n + sum(out) for n, out in zip(places.shape, places.overhang, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "boundlab.coefficients.placement.INDICES", rows * window.values.shape[1] * canvas
        )
        with Operators() as seen:
            dense = window.dense()
        torch.testing.assert_close(dense, dense_by_hand(window), rtol=0, atol=0)
        placed = any(run is not None for run in places.runs)
        parts = math.ceil(len(window.values) / rows) if placed else 0
        assert seen.counts["aten.scatter_.src"] == parts


@settings(deadline=None)
@given(windows())
def test_dense_is_the_window_in_its_place(window: Window) -> None:
    assert torch.equal(window.dense(), dense_by_hand(window))
    assert torch.equal(window.zero_padded().dense(), dense_by_hand(window))


@settings(deadline=None)
@given(windows(), st.integers(0, 99))
def test_products_with_constants(window: Window, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    constant = torch.randn(
        window.values.shape[1], *window.places.shape, generator=generator, dtype=torch.float64
    )
    dense = dense_by_hand(window)
    torch.testing.assert_close(window.dot(constant), (dense * constant).flatten(2).sum(2))
    torch.testing.assert_close(window.scaled(constant).dense(), dense * constant)
    same = constant[:1, ..., :1]
    torch.testing.assert_close(window.scaled(same).dense(), dense * same)


@settings(deadline=None)
@given(windows(), st.integers(0, 2), st.integers(-2, 2), st.integers(0, 99))
def test_sums(window: Window, grow: int, shift: int, seed: int) -> None:
    """Of windows that lie at a fixed distance, and of unrelated ones."""
    generator = torch.Generator().manual_seed(seed)
    p = window.places
    sizes = tuple(
        size if run is None else size + grow for size, run in zip(p.sizes, p.runs, strict=True)
    )
    runs = tuple(
        None if run is None else Run(run.index, run.count, run.first + shift, run.step)
        for run in p.runs
    )
    other = Window(
        torch.randn(*window.values.shape[:2], *sizes, generator=generator, dtype=torch.float64),
        Placement(p.shape, sizes, runs),
        clean=False,
    )
    torch.testing.assert_close(
        (window + other).dense(), dense_by_hand(window) + dense_by_hand(other)
    )
    chosen = torch.randint(
        0, max(1, torch.Size(p.shape).numel()), window.values.shape[:2], generator=generator
    )
    units = Window.units(torch.ones(chosen.shape, dtype=torch.float64), chosen, p.shape)
    torch.testing.assert_close(
        (units + window).dense(), dense_by_hand(window) + dense_by_hand(units)
    )


@settings(deadline=None)
@given(windows(), st.integers(0, 99))
def test_some_rows(window: Window, seed: int) -> None:
    kept = torch.randint(
        0,
        window.values.shape[0],
        (2, window.values.shape[1]),
        generator=torch.Generator().manual_seed(seed),
    )
    dense = dense_by_hand(window)
    expected = torch.stack(
        [torch.stack([dense[kept[r, b], b] for b in range(dense.shape[1])]) for r in range(2)]
    )
    assert torch.equal(window.pick(kept).dense(), expected)


@settings(deadline=None)
@given(windows(), st.data())
def test_reshapes(window: Window, data: st.DataObject) -> None:
    size = torch.Size(window.places.shape).numel()
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    first = data.draw(st.sampled_from(divisors))
    second = data.draw(st.sampled_from([n for n in divisors if (size // first) % n == 0]))
    for shape in (
        (size,),
        (first, size // first),
        (first, second, size // first // second),
        (1, size),
        (size, 1),
    ):
        assert torch.equal(
            _reshaped(window.zero_padded(), shape).dense(),
            dense_by_hand(window).reshape(*window.values.shape[:2], *shape),
        )


def test_groups_of_dimensions() -> None:
    assert _groups((2, 3, 4), (6, 4)) == [([0, 1], [0]), ([2], [1])]
    assert _groups((6, 4), (2, 3, 4)) == [([0], [0, 1]), ([1], [2])]
    assert [run.index.tolist() for run in unravel(torch.tensor([[7]]), (2, 3, 4))] == [
        [[0]],
        [[1]],
        [[3]],
    ]


# -- constants in memory ---------------------------------------------------------------------------


def test_constants_with_the_channels_last() -> None:
    """Windows read a constant by its strides, whatever its layout in memory is, also where they
    stick out of it."""
    torch.manual_seed(0)
    constant = torch.rand(2, 3, 4, 4)
    chosen = torch.randint(0, 16, (5, 2))
    runs = (None, Run(chosen // 4, 4, first=-1), Run(chosen % 4, 4, first=-1))
    places = Placement((3, 4, 4), (3, 3, 3), runs)
    plain, last = (
        places.take(constant),
        places.take(constant.contiguous(memory_format=torch.channels_last)),
    )
    assert torch.equal(plain, last)
    padded = F.pad(constant, (1, 1, 1, 1))
    for row in range(5):
        for sample in range(2):
            i, j = divmod(int(chosen[row, sample]), 4)
            assert torch.equal(plain[row, sample], padded[sample, :, i : i + 3, j : j + 3])


def test_what_windows_see_is_kept_for_windows_that_lie_alike_only() -> None:
    """Windows that stick out before a node and windows that stick out behind it have the same
    strides."""
    constant = Constant(torch.arange(1.0, 6.0)[None])
    index = torch.tensor([[0], [1], [2], [0], [1], [2]])
    for first in (-1, 0, -1):
        places = Placement((5,), (2,), (Run(index, 3, first, 2),))
        assert torch.equal(places.take(constant), places.take(constant.value))
    assert len(constant.seen) == 2
