"""All forms of coefficients do the same as the numbers that they stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.coefficients.dense import Dense, PerSample, of_node, placed
from boundlab.coefficients.outer import Outer
from boundlab.coefficients.placement import Placement, Run
from boundlab.coefficients.window import Window
from boundlab.graph.layout import SHARED, Layout
from boundlab.relaxations.interval import Interval

ROWS, SAMPLES = 4, 3


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def _window() -> tuple[Coefficients, Tensor]:
    """Windows of 2 x 3 in a node of 5 x 4, some of which stick out."""
    runs = (
        Run(torch.randint(0, 5, (ROWS, SAMPLES)), 5, first=-1),
        Run(torch.randint(0, 2, (ROWS, SAMPLES)), 2),
    )
    places = Placement((5, 4), (2, 3), runs)
    return Window(_random(ROWS, SAMPLES, 2, 3), places, clean=False), _random(SAMPLES, 5, 4)


def _dense() -> tuple[Coefficients, Tensor]:
    return Dense(_random(ROWS, SAMPLES, 5, 4), Layout(), SAMPLES), _random(SAMPLES, 5, 4)


def _merged() -> tuple[Coefficients, Tensor]:
    """The batch lies in dimension 1, between two others: 2 * 3 * 4."""
    layout = Layout(dim=1, outer=2, inner=4)
    return Dense(_random(ROWS, 5, 24), layout, SAMPLES), _random(5, 24)


def _per_sample() -> tuple[Coefficients, Tensor]:
    return PerSample.of(_random(ROWS, SAMPLES, 5, 4)), _random(5, 4)


def _scalar() -> tuple[Coefficients, Tensor]:
    return PerSample.of(_random(ROWS, SAMPLES)), _random()


def _outer() -> tuple[Coefficients, Tensor]:
    return Outer(_random(ROWS, SAMPLES, 5), _random(SAMPLES, 4)), _random(5, 4)


FORMS = [_window, _dense, _merged, _per_sample, _scalar, _outer]


def _values_by_sample(rows: Coefficients, value: Tensor) -> Tensor:
    """A value of the node as (samples, elements)."""
    whole = rows.whole()
    if isinstance(whole, PerSample):
        return value.reshape(1, -1).expand(SAMPLES, -1)
    return whole.layout.samples_first(value[None], SAMPLES)[0]


@pytest.mark.parametrize("make", FORMS)
def test_operations_are_those_of_the_numbers(
    make: Callable[[], tuple[Coefficients, Tensor]],
) -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        rows, value = make()
        numbers = rows.by_sample()  # (rows, samples, elements)
        x = _values_by_sample(rows, value)
        assert numbers.shape == (ROWS, SAMPLES, x.shape[1]) and len(rows) == ROWS
        torch.testing.assert_close(rows.whole().by_sample(), numbers)
        torch.testing.assert_close(rows.dot(value), (numbers * x).sum(2))
        torch.testing.assert_close((-rows).dot(value), -(numbers * x).sum(2))
        torch.testing.assert_close(rows.apply(torch.abs).by_sample(), numbers.abs())
        torch.testing.assert_close(rows[1:3].by_sample(), numbers[1:3])
        if rows.whole().layout.plain:
            kept = torch.rand(ROWS, SAMPLES).argsort(0)[:2]
            expected = numbers.gather(0, kept.unsqueeze(2).expand(-1, -1, numbers.shape[2]))
            torch.testing.assert_close(rows.pick(kept).by_sample(), expected)


@pytest.mark.parametrize("make", FORMS)
def test_least_values_are_attained_at_corners(
    make: Callable[[], tuple[Coefficients, Tensor]],
) -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        rows, value = make()
        box = Interval(value, value + torch.rand_like(value))
        numbers = rows.by_sample()
        low, up = _values_by_sample(rows, box.lower), _values_by_sample(rows, box.upper)
        expected = torch.where(numbers > 0, numbers * low, numbers * up).sum(2)
        torch.testing.assert_close(rows.least(box), expected)
        torch.testing.assert_close(rows.over_box(box), expected)


@pytest.mark.parametrize("make", FORMS)
def test_an_infinite_end_counts_only_where_a_coefficient_meets_it(
    make: Callable[[], tuple[Coefficients, Tensor]],
) -> None:
    torch.manual_seed(0)
    rows, value = make()
    rows = rows.apply(lambda part: part.clamp(min=0))
    unbounded_above = Interval(value, torch.full_like(value, torch.inf))
    torch.testing.assert_close(rows.least(unbounded_above), rows.dot(value))
    unbounded_below = Interval(torch.full_like(value, -torch.inf), value)
    found = rows.least(unbounded_below)
    assert torch.equal(found == -torch.inf, rows.by_sample().amax(2) > 0)


@pytest.mark.parametrize("first", [_window, _dense])
@pytest.mark.parametrize("second", [_window, _dense])
def test_sums_of_forms_of_a_node_with_samples(
    first: Callable[[], tuple[Coefficients, Tensor]],
    second: Callable[[], tuple[Coefficients, Tensor]],
) -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        (a, _), (b, _) = first(), second()
        before = a.by_sample().clone(), b.by_sample().clone()
        torch.testing.assert_close((a + b).by_sample(), before[0] + before[1])
        torch.testing.assert_close(a.by_sample(), before[0])
        torch.testing.assert_close(b.by_sample(), before[1])


@pytest.mark.parametrize("first", [_per_sample, _outer])
@pytest.mark.parametrize("second", [_per_sample, _outer])
def test_sums_of_forms_of_a_shared_node(
    first: Callable[[], tuple[Coefficients, Tensor]],
    second: Callable[[], tuple[Coefficients, Tensor]],
) -> None:
    torch.manual_seed(0)
    (a, _), (b, _) = first(), second()
    found = a + b
    assert isinstance(found, PerSample)
    torch.testing.assert_close(found.by_sample(), a.by_sample() + b.by_sample())


def test_rows_of_a_shared_node_are_flattened_and_back() -> None:
    rows = PerSample.of(_random(ROWS, SAMPLES, 5))
    assert torch.equal(rows.unflat(rows.flat()).values, rows.values)
    constant = _random(ROWS * SAMPLES, 5)  # one for each flat row, as alphas make them
    expected = (rows.values * constant.reshape(ROWS, SAMPLES, 5)).sum(2)
    torch.testing.assert_close(rows.term(rows.flat(), constant), expected)
    torch.testing.assert_close(rows.term(rows.flat(), None), rows.values.sum(2))


@pytest.mark.parametrize("layout", [Layout(), Layout(dim=1), Layout(0, 2, 2), SHARED])
def test_layouts_place_what_they_take_apart(layout: Layout) -> None:
    samples = layout.count(SAMPLES)
    shape = torch.Size((5, samples, 2)) if layout == Layout(dim=1) else torch.Size((4 * samples, 5))
    if layout == Layout():
        shape = torch.Size((samples, 5))
    rows = _random(ROWS, *shape)
    split = layout.samples_first(rows, SAMPLES)
    assert split.shape == (ROWS, samples, layout.sample_shape(shape).numel())
    assert torch.equal(layout.place(split, shape), rows)
    form = placed(split, layout, shape, samples)
    assert torch.equal(form.by_sample(), split)
    assert isinstance(of_node(form.values, layout, samples), type(form))
    numbers = _random(ROWS, samples)
    wide = layout.spread(numbers, shape).expand(ROWS, *shape)
    assert torch.equal(layout.samples_first(wide, SAMPLES)[:, :, 0], numbers)
