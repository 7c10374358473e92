"""Intervals of nodes that splits make tighter hold, and are tighter."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.graph.layout import Layout
from boundlab.verify.branch import per_domain
from boundlab.verify.domains import Domains
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.query import Query
from boundlab.verify.tighten import Leaves, Tightening

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "leaky": nn.LeakyReLU, "softshrink": nn.Softshrink}


def deep(seed: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(3, 8)]
    for _ in range(2):
        layers += [activation(), nn.Linear(8, 8)]
    return nn.Sequential(*layers, activation(), nn.Linear(8, 1)).double()


def values_of_nodes(search: NeuronSplitting, x: Tensor) -> dict[str, Tensor]:
    """What all nodes of a network are at some inputs."""
    graph = search.query.net.graph
    with torch.no_grad():
        return graph.run({**search.problem.constants, graph.inputs[0]: x})


def below(threshold: float) -> Callable[[Any], Any]:
    return lambda y: y[:, 0] < threshold


def search_of(model: nn.Module, box: bl.Box) -> NeuronSplitting:
    """A search that has begun, for a threshold that is out of reach."""
    query = Query.of(model, bl.Property(box, below(-100.0)))
    search = NeuronSplitting(query, time.monotonic() + 60)
    search.begin(torch.arange(len(query.rows)))
    return search


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_tighter_intervals_hold(name: str, seed: int) -> None:
    model = deep(seed, ACTIVATIONS[name])
    low, up = -torch.ones(1, 3).double(), torch.ones(1, 3).double()
    search = search_of(model, bl.Box(low, up))
    root = search.root
    assert root is not None
    brancher = search.bounder.brancher
    work = Tightening.of(search.query, search.cases, brancher, root)
    before = {node: per_domain(search.cases, node) for node in brancher.nodes(root)}
    work.run(time.monotonic() + 5)
    x = low + torch.rand(20000, 3).double() * 2
    seen = values_of_nodes(search, x)
    gained = 0.0
    for node in before:
        after, values = per_domain(work.cases, node), seen[node]
        assert (after.lower <= values + 1e-9).all() and (values <= after.upper + 1e-9).all()
        old = before[node]
        assert (after.lower >= old.lower).all() and (after.upper <= old.upper).all()
        gained += float((after.lower - old.lower + old.upper - after.upper).sum())
    assert work.splits > 0 and gained > 0.1


@pytest.mark.parametrize("seed", range(4))
def test_search_after_tightening_is_right(seed: int) -> None:
    """With thresholds on either side of a value that is reached."""
    model = deep(seed)
    box = bl.Box(-torch.ones(1, 3).double(), torch.ones(1, 3).double())
    x = torch.rand(50000, 3).double() * 2 - 1
    with torch.no_grad():
        top = float(model(x).max())
    for threshold, holds in ((top - 1e-3, False), (top + 1.0, None)):
        query = Query.of(model, bl.Property(box, below(threshold)))
        search = NeuronSplitting(query, time.monotonic() + 20)
        search.begin(torch.arange(1))
        for _ in range(2):
            search.run(0.3)
            search.tighten(0.5)
            assert search.counts.add_up(search.open)
        search.run(5.0)
        assert search.counts.add_up(search.open)
        if holds is False:
            assert not search.is_proved


def leaves_of(bounds: list[float], rows: list[int], enough: float) -> Leaves:
    state = bl.BoundState(samples=len(rows), layouts={"x": Layout(0)}, origin=torch.tensor(rows))
    return Leaves(Domains(state, torch.tensor(bounds).double()), max(rows) + 1, enough)


def test_leaves() -> None:
    leaves = leaves_of([-3.0, -1.0, 2.0, -2.0], [0, 0, 1, 1], 0.0)
    assert leaves.open.bound.tolist() == [-3.0, -1.0, -2.0]  # 2 is enough
    assert leaves.bounds().tolist() == [-3.0, -2.0]
    assert leaves.worst(1).tolist() == [True, False, True]
    chosen = leaves.worst(1)
    parents = leaves.open.take(chosen)
    better = Domains(parents.state.take([0]), torch.tensor([-1.5]).double())
    leaves.grow(chosen, better, parents.take(torch.tensor([False, True])))
    assert leaves.bounds().tolist() == [-1.5, -2.0]
    assert leaves.open.origin.tolist() == [0, 0]  # the row of the stuck one is done


def test_clauses_without_bounds_are_bounded_anew() -> None:
    """Where the time was not enough at first, tightening begins the search again."""
    search = search_of(deep(0), bl.Box(-torch.ones(1, 3).double(), torch.ones(1, 3).double()))
    search.chunks, search.not_bounded = [], torch.arange(1)
    assert search.bound == -torch.inf and search.counts.add_up(search.open)
    search.tighten(0.5)
    assert not len(search.not_bounded) and search.bound > -torch.inf
    assert search.counts.add_up(search.open)
