"""Lookups by a perturbed index and places in sorted sequences, against every index in reach."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import boundlab as bl
from boundlab.graph.graph import Node, Ref
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.cases import Cases, with_cases
from boundlab.rules.registry import Call, find_rule
from tests.helpers import versions

aten = torch.ops.aten
TABLE, INDEX = Ref("table"), Ref("index")
SWAPPED = torch.tensor([1, 0])
dtypes = st.sampled_from([torch.float32, torch.float64])


def called(
    op: Any, args: tuple[Any, ...], options: dict[str, Any] | None = None, **values: Any
) -> Call:
    return Call.of(Node("y", op, args, options or {}), values.__getitem__)


def interval(call: Call) -> Interval:
    return find_rule(call.node).interval(call)


def indices_between(index: Interval) -> Iterator[Tensor]:
    """Every index in reach."""
    ends = zip(index.lower.flatten().tolist(), index.upper.flatten().tolist(), strict=True)
    for numbers in itertools.product(*[range(low, up + 1) for low, up in ends]):
        yield torch.tensor(numbers, dtype=index.dtype).reshape(index.shape)


def hull(values: list[Tensor]) -> Interval:
    stacked = torch.stack(values)
    return Interval(stacked.amin(0), stacked.amax(0))


def assert_same(found: Interval, expected: Interval) -> None:
    assert torch.equal(found.lower, expected.lower) and torch.equal(found.upper, expected.upper)


FIRST = -3 if versions.FROM_THE_END else 0
LOOKUPS: dict[str, tuple[Any, tuple[Any, ...], tuple[int, ...], tuple[int, ...], int, int]] = {
    "gather": (aten.gather.default, (TABLE, 1, INDEX), (2, 4), (2, 2), 0, 3),
    "gather, first": (aten.gather.default, (TABLE, 0, INDEX), (3, 2), (2, 2), 0, 2),
    "index_select": (aten.index_select.default, (TABLE, 1, INDEX), (2, 4), (3,), 0, 3),
    "take": (aten.take.default, (TABLE, INDEX), (2, 3), (2, 2), -6, 5),
    "take_along_dim": (aten.take_along_dim.default, (TABLE, INDEX, 1), (2, 3), (2, 2), FIRST, 2),
    "index": (aten.index.Tensor, (TABLE, [None, INDEX]), (2, 4), (3,), -4, 3),
    "index, twice": (aten.index.Tensor, (TABLE, [INDEX, SWAPPED]), (4, 2), (2,), -4, 3),
}  # fmt: skip
"""Operator and arguments, shapes of table and index, first and last entry."""


@st.composite
def lookups(draw: st.DrawFn) -> tuple[Call, Interval, Interval]:
    """A call with a table and an index in intervals, many of them points or tied."""
    op, args, shape, places, least, most = LOOKUPS[draw(st.sampled_from(sorted(LOOKUPS)))]
    count, size = torch.Size(places).numel(), torch.Size(shape).numel()
    ends = st.tuples(st.integers(least, most), st.integers(0, 2))
    drawn = draw(st.lists(ends, min_size=count, max_size=count))
    low = torch.tensor([first for first, _ in drawn]).reshape(places)
    up = torch.tensor([min(first + width, most) for first, width in drawn]).reshape(places)
    numbers = st.floats(-3, 3, width=32) | st.sampled_from([0.0, 1.0, -1.0])
    lists = st.lists(numbers, min_size=size, max_size=size)
    first, second = torch.tensor([draw(lists), draw(lists)], dtype=draw(dtypes)).reshape(2, *shape)
    if draw(st.booleans()):
        second = first
    table = Interval(torch.minimum(first, second), torch.maximum(first, second))
    index = Interval(low, up)
    return called(op, args, table=table, index=index), table, index


@settings(deadline=None, max_examples=60)
@given(lookups())
def test_the_interval_is_the_hull_of_what_is_in_reach(
    drawn: tuple[Call, Interval, Interval],
) -> None:
    call, table, index = drawn
    f = call.bind()
    reached = [f(end, at) for at in indices_between(index) for end in (table.lower, table.upper)]
    assert_same(interval(call), hull(reached))
    constant = called(call.node.op, call.node.args, table=table.lower, index=index)
    values = [f(table.lower, at) for at in indices_between(index)]
    assert_same(interval(constant), hull(values))


def lines(relaxation: Relaxation, y: Tensor, inputs: tuple[Tensor, ...]) -> Interval:
    """The lower and the upper line of every element of y, at a point."""
    rows = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
    ends = []
    for sign in (1, -1):
        parts, terms = relaxation.backward(sign * rows)
        total = sum((part * x).flatten(1).sum(1) for part, x in zip(parts, inputs, strict=True))
        for part, constant in terms:
            total = total + (part if constant is None else part * constant).flatten(1).sum(1)
        ends.append(sign * torch.as_tensor(total).reshape(y.shape))
    return Interval(*ends)


@settings(deadline=None, max_examples=60)
@given(lookups(), st.integers(0, 2**31))
def test_lines_hold(drawn: tuple[Call, Interval, Interval], seed: int) -> None:
    """At every index, for corners of the table and points between; exact for a certain index."""
    call, table, index = drawn
    relaxation = find_rule(call.node).relax(call)
    known = interval(call)
    share = torch.rand(table.shape, generator=torch.Generator().manual_seed(seed))
    middle = torch.lerp(table.lower, table.upper, share.to(table.dtype))
    tables = [table.lower, table.upper, middle, torch.where(share < 0.5, table.lower, table.upper)]
    certain = bool((index.lower == index.upper).all())
    for at, values in itertools.product(indices_between(index), tables):
        y = call.bind()(values, at)
        found = lines(relaxation, y, (values, at.to(values.dtype)))
        room = 1e-5 if y.dtype == torch.float32 else 1e-12
        assert bool((found.lower <= y + room).all()) and bool((y <= found.upper + room).all())
        if certain:
            torch.testing.assert_close(found.lower, y)
            torch.testing.assert_close(found.upper, y)
        else:  # never wider than the interval by more than the table's own width
            assert bool((found.lower >= known.lower - room).all())


@settings(deadline=None, max_examples=60)
@given(lookups())
def test_lines_of_a_constant_table_are_its_interval(drawn: tuple[Call, Interval, Interval]) -> None:
    """Whatever the shape of the index is."""
    call, table, index = drawn
    constant = called(call.node.op, call.node.args, table=table.lower, index=index)
    known, relaxation = interval(constant), find_rule(constant.node).relax(constant)
    found = lines(relaxation, known.lower, (index.lower.to(table.dtype),))
    assert_same(found, known)
    nothing = torch.zeros(2, *index.shape, dtype=table.dtype)
    low, up = relaxation.forward([nothing], [nothing])
    assert_same(Interval(low[1], up[1]), known)
    assert not low[0].any() and not up[0].any()


@settings(deadline=None, max_examples=60)
@given(lookups())
def test_forward_agrees_with_backward(drawn: tuple[Call, Interval, Interval]) -> None:
    """With the table itself as the only column."""
    call, table, index = drawn
    relaxation = find_rule(call.node).relax(call)
    zeros = torch.zeros_like(table.lower)
    forms = torch.stack([torch.ones_like(zeros), zeros])
    nothing = torch.zeros(2, *index.shape, dtype=table.dtype)
    low, up = relaxation.forward([forms, nothing], [forms, nothing])
    expected = lines(relaxation, low[1], (zeros, index.lower.to(table.dtype)))
    torch.testing.assert_close(low[1], expected.lower)
    torch.testing.assert_close(up[1], expected.upper)
    at_one = lines(relaxation, low[1], (zeros + 1, index.lower.to(table.dtype)))
    torch.testing.assert_close(low.sum(0), at_one.lower)
    torch.testing.assert_close(up.sum(0), at_one.upper)


# -- places ----------------------------------------------------------------------------------------

BOUNDARIES = [-1.0, -0.5, 0.0, 0.0, 0.25, 2.0]
ends = st.floats(-3, 3, width=32) | st.sampled_from(BOUNDARIES)
SEARCHES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "bucketize": (aten.bucketize.Tensor, (INDEX, TABLE), {}),
    "bucketize, right": (aten.bucketize.Tensor, (INDEX, TABLE), {"right": True, "out_int32": True}),
    "searchsorted": (aten.searchsorted.Tensor, (TABLE, INDEX), {}),
    "searchsorted, right": (aten.searchsorted.Tensor, (TABLE, INDEX), {"side": "right"}),
}


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(SEARCHES)), ends, ends, dtypes)
def test_places_are_exact(name: str, a: float, b: float, dtype: torch.dtype) -> None:
    """The ends are reached, and nothing beyond: looked for at all boundaries between and beside."""
    op, args, options = SEARCHES[name]
    boundaries = torch.tensor(BOUNDARIES, dtype=dtype)
    low, up = torch.tensor([min(a, b)], dtype=dtype), torch.tensor([max(a, b)], dtype=dtype)
    call = called(op, args, options, table=boundaries, index=Interval(low, up))
    beside = [torch.nextafter(boundaries, torch.full_like(boundaries, end)) for end in (-9, 9)]
    tried = torch.cat([low, up, boundaries, *beside])
    tried = tried[(tried >= low) & (tried <= up)]
    places = torch.stack([call.bind()(x.reshape(1)) for x in tried])
    found = interval(call)
    assert found.dtype == places.dtype
    assert_same(found, Interval(places.amin(0), places.amax(0)))


def test_of_nan_no_place_is_known() -> None:
    nan = torch.tensor([torch.nan])
    boundaries = torch.tensor(BOUNDARIES)
    call = called(aten.bucketize.Tensor, (INDEX, TABLE), table=boundaries, index=Interval(nan, nan))
    assert_same(interval(call), Interval(torch.tensor([0]), torch.tensor([6])))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(ends, ends), min_size=4, max_size=4), st.booleans(), dtypes)
def test_every_place_of_a_maximum_that_is_in_reach(
    pairs: list[tuple[float, float]], largest: bool, dtype: torch.dtype
) -> None:
    """Entry j is an extreme one for some values if and only if it is at its best end while all
    others are at their worst; ties count for each of them."""
    x = torch.tensor([sorted(pair) for pair in pairs], dtype=dtype)
    best, worst = (x[:, 1], x[:, 0]) if largest else (-x[:, 0], -x[:, 1])
    reached = [j for j in range(4) if all(best[j] >= worst[k] for k in range(4) if k != j)]
    op = aten.argmax.default if largest else aten.argmin.default
    found = interval(called(op, (TABLE,), table=Interval(x[:, 0], x[:, 1])))
    assert (int(found.lower), int(found.upper)) == (reached[0], reached[-1])


def test_of_nan_no_maximum_is_known() -> None:
    x = torch.tensor([0.0, torch.nan, 1.0])
    found = interval(called(aten.argmax.default, (TABLE,), table=Interval(x, x)))
    assert (int(found.lower), int(found.upper)) == (0, 2)


# -- cases -----------------------------------------------------------------------------------------

small = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=3, max_size=3)


@settings(deadline=None, max_examples=60)
@given(small, st.lists(st.floats(-3, 3, width=32), min_size=9, max_size=9), dtypes)
def test_functions_of_one_index_are_exact(
    drawn: list[tuple[int, int]], numbers: list[float], dtype: torch.dtype
) -> None:
    """table[i + 1] - table[i], whose two intervals know nothing of each other."""
    table = torch.tensor(numbers, dtype=dtype)
    index = Interval(
        torch.tensor([first for first, _ in drawn]), torch.tensor([sum(pair) for pair in drawn])
    )
    known: dict[str, Any] = {"table": table}

    def step(name: str, op: Any, *args: Any) -> Interval:
        call = Call.of(Node(name, op, args, {}), known.__getitem__)
        rule = find_rule(call.node)
        known[name] = with_cases(rule, call, rule.interval(call))
        return known[name]

    known["x"] = Interval(index.lower.to(dtype), index.upper.to(dtype) + 0.5)
    halves = torch.arange(1, 9, dtype=dtype)
    step("i", aten.bucketize.Tensor, Ref("x"), halves - 0.25)
    step("next", aten.add.Tensor, Ref("i"), 1)
    step("left", aten.index.Tensor, TABLE, [Ref("i")])
    step("right", aten.index.Tensor, TABLE, [Ref("next")])
    found = step("gap", aten.sub.Tensor, Ref("right"), Ref("left"))
    i = known["i"]
    expected = hull(
        [table[at + 1] - table[at] for at in indices_between(Interval(i.lower, i.upper))]
    )
    assert_same(found, expected)


def test_elements_in_another_order_are_no_cases() -> None:
    """i * i.flip(0) depends on two elements of i: the cases of one would miss most products."""
    known: dict[str, Any] = {"x": Interval(torch.tensor([0.0, 2.0]), torch.tensor([3.0, 2.0]))}
    steps = {
        "i": (aten.bucketize.Tensor, (Ref("x"), torch.tensor([0.5, 1.5, 2.5]))),
        "flipped": (aten.flip.default, (Ref("i"), [0])),
        "product": (aten.mul.Tensor, (Ref("i"), Ref("flipped"))),
    }
    for name, (op, args) in steps.items():
        call = Call.of(Node(name, op, args), known.__getitem__)
        rule = find_rule(call.node)
        known[name] = with_cases(rule, call, rule.interval(call))
    assert isinstance(known["i"], Cases)
    assert_same(known["product"], Interval(torch.tensor([0, 0]), torch.tensor([6, 6])))


# -- refusals --------------------------------------------------------------------------------------


def test_an_index_beyond_the_table_is_refused() -> None:
    table = torch.arange(4.0)
    for low, up in ((0, 4), (-1, 2), (3, 1)):
        index = Interval(torch.tensor([low]), torch.tensor([up]))
        call = called(aten.gather.default, (TABLE, 0, INDEX), table=table, index=index)
        with pytest.raises(bl.DomainError, match=r"must lie in \[0, 3\]"):
            interval(call)
    index = Interval(torch.tensor([-5]), torch.tensor([0]))
    with pytest.raises(bl.DomainError, match=r"must lie in \[-4, 3\]"):
        interval(called(aten.index.Tensor, (TABLE, [INDEX]), table=table, index=index))


def test_perturbed_masks_and_boundaries_are_refused() -> None:
    mask = Interval(torch.tensor([False, True]), torch.tensor([True, True]))
    call = called(aten.index.Tensor, (TABLE, [INDEX]), table=torch.arange(2.0), index=mask)
    with pytest.raises(bl.UnsupportedOperator, match="mask"):
        interval(call)
    x = Interval(torch.zeros(2), torch.ones(2))
    with pytest.raises(bl.UnsupportedOperator, match="boundaries"):
        interval(called(aten.bucketize.Tensor, (TABLE, INDEX), table=torch.ones(2), index=x))


def test_a_whole_number_may_be_looked_up() -> None:
    """A constant index into a perturbed table of whole numbers is no perturbed index."""
    table = Interval(torch.tensor([1, 5]), torch.tensor([2, 7]))
    call = called(
        aten.index_select.default, (TABLE, 0, INDEX), table=table, index=torch.tensor([1])
    )
    assert_same(interval(call), Interval(torch.tensor([5]), torch.tensor([7])))
