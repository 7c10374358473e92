"""Word substitutions: the region against brute force."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import boundlab as bl
from boundlab.coefficients.placement import Placement, Run
from boundlab.coefficients.window import Window
from tests.helpers.words import draw_words


def sentences_of(region: bl.Words, sample: int) -> list[Tensor]:
    """All sentences of one sample's set."""
    _, positions, choices = region.substitutes.shape[:3]
    allowed = (
        torch.ones(region.substitutes.shape[:3], dtype=torch.bool)
        if region.allowed is None
        else region.allowed
    )
    options = [
        [None, *[k for k in range(choices) if allowed[sample, t, k]]] for t in range(positions)
    ]
    budget = (
        positions
        if region.budget is None
        else int(torch.as_tensor(region.budget).reshape(-1).expand(len(region.x))[sample])
    )
    found = []
    for choice in itertools.product(*options):
        if sum(k is not None for k in choice) <= budget:
            word = lambda t, k: (
                region.x[sample, t]
                if k is None
                else torch.lerp(region.x[sample, t], region.substitutes[sample, t, k], region.eps)
            )
            found.append(torch.stack([word(t, k) for t, k in enumerate(choice)]))
    return found


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10_000),
    st.sampled_from([None, 0, 1, 2, 4, "each"]),
    st.sampled_from([1.0, 0.5, 0.0]),
    st.booleans(),
)
def test_minimum_and_hull_are_those_of_all_sentences(
    seed: int, budget: int | str | None, eps: float, every: bool
) -> None:
    x, others, allowed = draw_words(seed)
    limit = torch.tensor([1, 3]) if budget == "each" else budget
    region = bl.Words(x, others, None if every else allowed, limit, eps)  # type: ignore[arg-type]
    rows = torch.randn(
        3, 2, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1)
    )
    found, hull = region.minimum(rows), region.hull()
    for sample in range(2):
        sentences = torch.stack(sentences_of(region, sample))
        expected = torch.einsum("rld,mld->rm", rows[:, sample], sentences).amin(1)
        torch.testing.assert_close(found[:, sample], expected)
        torch.testing.assert_close(hull.lower[sample], sentences.amin(0))
        torch.testing.assert_close(hull.upper[sample], sentences.amax(0))
    for k in range(4):
        point = region.sample(torch.Generator().manual_seed(k))
        for sample in range(2):
            distances = (
                (torch.stack(sentences_of(region, sample)) - point[sample]).abs().amax((1, 2))
            )
            assert float(distances.min()) < 1e-12


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 10_000),
    st.sampled_from([None, 0, 1, 2, "each"]),
    st.integers(1, 4),
    st.booleans(),
)
def test_windows_of_words_as_dense_rows(
    seed: int, budget: int | str | None, size: int, narrow: bool
) -> None:
    x, others, allowed = draw_words(seed, positions=4, dim=3)
    generator = torch.Generator().manual_seed(seed)
    region = bl.Words(x, others, allowed, torch.tensor([1, 3]) if budget == "each" else budget, 0.8)  # type: ignore[arg-type]
    # windows may stick out on both sides
    run = Run(torch.randint(0, 4, (5, 2), generator=generator), 4, first=-1)
    inside = Run(torch.randint(0, 2, (5, 2), generator=generator), 2) if narrow else None
    places = Placement((4, 3), (size, 2 if narrow else 3), (run, inside))
    values = torch.randn(5, 2, *places.sizes, dtype=torch.float64, generator=generator)
    window = Window(values, places, clean=False).zero_padded()
    torch.testing.assert_close(region.least(window), region.minimum(window.dense()))
    torch.testing.assert_close(
        region.least(Window(values, places, clean=False)), region.minimum(window.dense())
    )


def test_gradients_reach_words_substitutes_and_coefficients() -> None:
    x, others, allowed = draw_words(3)
    rows = torch.randn(2, 2, 4, 2, dtype=torch.float64)
    function = lambda x, others, rows: bl.Words(x, others, allowed, 2, 0.7).minimum(rows)
    assert torch.autograd.gradcheck(function, tuple(t.requires_grad_() for t in (x, others, rows)))
    ends = lambda x, others: (
        bl.Words(x, others, allowed, 2).hull().lower,
        bl.Words(x, others, allowed, 2).hull().upper,
    )
    assert torch.autograd.gradcheck(ends, (x, others))


def test_budgets_are_monotone_and_sentences_can_be_taken_apart() -> None:
    x, others, allowed = draw_words(5, samples=3)
    rows = torch.randn(4, 3, 4, 2, dtype=torch.float64)
    least = [bl.Words(x, others, allowed, budget).minimum(rows) for budget in (0, 1, 2, 3, 4, None)]
    for more, fewer in itertools.pairwise(least):
        assert (fewer <= more + 1e-12).all()
    torch.testing.assert_close(least[4], least[5])
    region = bl.Words(x, others, allowed, torch.tensor([1, 2, 3]))
    part = region.samples(slice(1, 3))
    torch.testing.assert_close(part.minimum(rows[:, 1:]), region.minimum(rows)[:, 1:])


def test_nothing_to_replace() -> None:
    x, others, _ = draw_words(0)
    for region in (
        bl.Words(x, others[:, :, :0]),
        bl.Words(x, others, torch.zeros(2, 4, 3, dtype=torch.bool)),
        bl.Words(x, others, budget=0),
    ):
        assert torch.equal(region.hull().lower, x) and torch.equal(region.sample(), x)
        torch.testing.assert_close(
            region.minimum(torch.ones(1, 2, 4, 2, dtype=torch.float64))[0], x.sum((1, 2))
        )


@pytest.mark.parametrize(
    "change",
    [
        {"budget": -1},
        {"budget": 1.5},
        {"eps": 2.0},
        {"allowed": torch.ones(2, 4, 3)},
        {"budget": torch.tensor([1, 2, 3])},
    ],
)
def test_what_is_wrong_is_said(change: dict[str, object]) -> None:
    x, others, _ = draw_words(0)
    with pytest.raises(bl.ArgumentError):
        bl.Words(x, others, **change)  # type: ignore[arg-type]
    with pytest.raises(bl.ArgumentError, match="positions"):
        bl.Words(x, others[:, 1:])
    with pytest.raises(bl.ArgumentError, match="one type"):
        bl.Words(x, others.float())


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000),
    st.sampled_from([None, 0, 1, 2, 4, "each"]),
    st.sampled_from([1.0, 0.5, 0.3, 0.0]),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_members_are_the_sentences_of_the_set(
    seed: int, budget: int | str | None, eps: float, every: bool, dtype: torch.dtype
) -> None:
    """Every member is one, flat or not; with a word that is none of its versions, or with more
    words replaced than the budget allows, it is none."""
    x, others, allowed = draw_words(seed)
    x, others = x.to(dtype), others.to(dtype)
    limit = torch.tensor([1, 3]) if budget == "each" else budget
    region = bl.Words(x, others, None if every else allowed, limit, eps)  # type: ignore[arg-type]
    for k in range(5):
        point = region.sample(torch.Generator().manual_seed(k))
        assert region.contains(point).all()
        assert region.contains(point.flatten(1)).all()
        moved = point.clone()
        moved[:, k % 4, 0] += 7
        assert not region.contains(moved).any()
        assert region.contains(moved, 7.5).all()
    for sample in range(2):
        one = region.samples(slice(sample, sample + 1))
        sentences = torch.stack(sentences_of(one, 0))
        assert one.contains(sentences, 1e-6).all()  # one region for all of them
        if limit is not None and eps == 1:
            wider = torch.stack(sentences_of(bl.Words(one.x, one.substitutes, one.allowed), 0))
            changed = (wider != one.x).any(2).sum(1)
            most = int(torch.as_tensor(limit).reshape(-1).expand(2)[sample])
            assert torch.equal(one.contains(wider), changed <= most)


def test_substitutes_that_are_not_allowed_are_no_members() -> None:
    x, others, allowed = draw_words(3)
    region = bl.Words(x, others, allowed)
    for t, k in itertools.product(range(x.shape[1]), range(others.shape[2])):
        point = x.clone()
        point[:, t] = others[:, t, k]
        assert torch.equal(region.contains(point), allowed[:, t, k])


def test_members_of_another_size_are_refused() -> None:
    x, others, allowed = draw_words(0)
    with pytest.raises(bl.ArgumentError, match="elements"):
        bl.Words(x, others, allowed).contains(torch.zeros(2, 5))
    assert not bl.Words(x, others, allowed).contains(torch.full_like(x, torch.nan)).any()
