"""Splits that are chosen by trials: both sides cover the parent, and points are chosen."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.relaxations.interval import Interval
from boundlab.verify.branch import per_domain
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.query import Query

MODELS = {
    "tanh": lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh()),
    "relu": lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU()),
    "mixed": lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.Sigmoid()),
}


def search_of(name: str, seed: int) -> tuple[NeuronSplitting, bl.Box]:
    torch.manual_seed(seed)
    model = nn.Sequential(MODELS[name](), nn.Linear(6, 1)).double()
    box = bl.Box(-torch.ones(1, 4).double(), torch.ones(1, 4).double())
    query = Query.of(model, bl.Property(box, lambda y: y[:, 0] < -100.0))
    search = NeuronSplitting(query, time.monotonic() + 60)
    search.begin(torch.arange(1))
    return search, box


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_sides_of_tried_splits_cover_their_parent(name: str, seed: int) -> None:
    search, box = search_of(name, seed)
    (parent,) = search.chunks
    splits = search.bounder.best_splits(parent.state, 2)
    assert bool(splits.can.all()) and splits.places.unique().numel() == splits.places.numel()
    assert bool(((splits.lower < splits.points) & (splits.points < splits.upper)).all())
    assert bool((splits.points[splits.kinked] == 0).all())
    children = search.bounder.bounded(search.bounder.halved(parent.state, splits), 3)
    x = box.lower + (box.upper - box.lower) * torch.rand(2000, 4).double()
    graph = search.query.net.graph
    with torch.no_grad():
        values = graph.run({**search.problem.constants, graph.inputs[0]: x})
    inside = torch.zeros(len(x), len(children), dtype=torch.bool)
    for child in range(len(children)):
        inside[:, child] = members(search, children.state.take(torch.tensor([child])), values)
    assert bool(inside.any(1).all())
    outputs = values[search.query.net.only_output("test")] @ search.query.rows.spec()[0].T
    least = torch.where(inside, outputs.amax(1, keepdim=True), torch.inf).amin(0)
    assert bool((children.bound <= least + 1e-9).all())


def members(search: NeuronSplitting, child: bl.BoundState, values: dict[str, Tensor]) -> Tensor:
    """Which inputs satisfy all intervals of a domain."""
    found: Tensor | None = None
    for node in search.bounder.brancher.nodes(child):
        x, value = per_domain(child, node), values[node].flatten(1)
        here = ((x.lower - 1e-9 <= value) & (value <= x.upper + 1e-9)).all(1)
        found = here if found is None else found & here
    assert found is not None
    return found


def test_points_away_from_the_middle_are_chosen() -> None:
    chosen = set()
    for seed in range(6):
        search, _ = search_of("tanh", seed)
        (parent,) = search.chunks
        splits = search.bounder.best_splits(parent.state, 1)
        share = (splits.points - splits.lower) / (splits.upper - splits.lower)
        chosen.add(round(float(share[0, 0]), 3))
    assert chosen <= {0.25, 0.5, 0.75} and len(chosen) > 1


def test_infinite_intervals_are_not_split() -> None:
    search, _ = search_of("tanh", 0)
    (parent,) = search.chunks
    endless = {
        name: Interval(torch.full_like(x.lower, -torch.inf), torch.full_like(x.upper, torch.inf))
        for name, x in parent.state.intervals.items()
    }
    splits = search.bounder.best_splits(replace(parent.state, intervals=endless), 1)
    assert not bool(splits.can.any())
