"""Neuron splitting with little memory, and what is kept of a domain."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import boundlab as bl
from boundlab.verify import neurons
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.query import Query


def search_of(seed: int, room: float) -> NeuronSplitting:
    """A search that alpha-crown does not end: the output is above its least sampled value less
    some room."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU()),
        *(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1)),
    ).double()
    x = torch.randn(1, 6, dtype=torch.float64)
    box = bl.Box(x - 0.7, x + 0.7)
    with torch.no_grad():
        least = float(model(box.lower + 1.4 * torch.rand(20000, 6, dtype=torch.float64)).min())
    prop = bl.Property(box, lambda y: y[:, 0] > least - room)
    search = NeuronSplitting(Query.of(model, prop), time.monotonic() + 120)
    search.begin(torch.arange(1))
    return search


def test_scarce_memory_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Domains closest to a proof come first then, and the identity of counts holds."""
    search = search_of(5, 0.02)
    assert search.open and not search.is_proved
    monkeypatch.setattr(neurons, "LARGEST", 16)
    monkeypatch.setattr(neurons, "MEMORY", 40 * search.nbytes)
    most = 0
    while not search.is_over:
        search.round()
        most = max(most, search.nbytes)
        assert search.counts.add_up(search.open)
    assert most > neurons.MEMORY  # memory was scarce
    assert search.is_proved


def test_far_too_many_domains_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    search = search_of(5, 0.02)
    monkeypatch.setattr(neurons, "MEMORY", 0)
    assert search.is_over and search.is_stuck and not search.is_proved


def test_intervals_that_follow_from_others_are_not_kept() -> None:
    """Domains have the same bounds with and without them."""
    search = search_of(5, 0.02)
    whole = search.bounder.problem
    state = search.chunks[0].state
    read = set(search.bounder.brancher.nodes(state))
    assert read <= set(state.intervals) < set(search.cases.intervals)
    assert search.chunks[0].nbytes >= state.nbytes > 0
    more = state.with_known(search.cases.intervals)
    for method in ("crown-ibp", "alpha-crown"):
        without = whole.bounds(state, method, "lower").lower
        torch.testing.assert_close(whole.bounds(more, method, "lower").lower, without)
