"""Neuron splitting and the solver, on networks whose extremes are known."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.verify.exact import ExactSearch
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.query import Query


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1))
    return layers.double().eval()


@torch.no_grad()
def largest(model: nn.Module) -> float:
    """The largest output over [-1, 1]^2, on a grid fine enough for 1e-3."""
    side = torch.linspace(-1, 1, 801, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    return float(model(grid).max())


def box() -> bl.Box:
    return bl.Box(-torch.ones(1, 2).double(), torch.ones(1, 2).double())


def below(threshold: float, region: bl.Box | None = None) -> bl.Property:
    return bl.Property(region or box(), lambda y: y[:, 0] < threshold)


def neurons(model: nn.Module, prop: bl.Property) -> NeuronSplitting:
    search = NeuronSplitting(Query.of(model, prop), time.monotonic() + 20)
    search.begin(torch.arange(1))
    search.run()
    return search


@pytest.mark.parametrize("seed", range(5))
def test_neuron_splitting(seed: int) -> None:
    model = network(seed)
    top = largest(model)
    proved = neurons(model, below(top + 0.05))
    assert proved.is_proved and proved.counts.add_up(0)
    refused = neurons(model, below(top - 1e-4))
    assert not refused.is_proved and refused.counts.add_up(refused.open)


@pytest.mark.parametrize("seed", range(5))
def test_solver(seed: int) -> None:
    pytest.importorskip("highspy")
    model = network(seed)
    top = largest(model)
    for threshold, holds in ((top + 0.02, True), (top - 0.02, False)):
        query = Query.of(model, below(threshold))
        problem = query.problem()
        with torch.no_grad():
            state = problem.bounds(bl.BoundState(), "crown", "lower").state
        assert state is not None
        search = ExactSearch(query, problem, state)
        assert search.can(state)
        refuted, point = search.decide(state, 0, 20.0)
        assert refuted == holds and (point is None) == holds
        if point is not None:
            assert float(model(point[None]).detach()) >= threshold - 1e-3


def refuted(model: nn.Module, prop: bl.Property) -> bool | None:
    """What the solver says of the only clause of a property; None if it cannot be asked."""
    query = Query.of(model, prop)
    problem = query.problem()
    with torch.no_grad():
        state = problem.bounds(bl.BoundState(), "crown", "lower").state
    assert state is not None
    search = ExactSearch(query, problem, state)
    return search.decide(state, 0, 20.0)[0] if search.can(state) else None


@pytest.mark.parametrize("power", [-11.0, -9.0, 8.0, 11.0])
@pytest.mark.parametrize("layer", [0, 2])
def test_solver_of_many_magnitudes(power: float, layer: int) -> None:
    """The solver takes 1e-7 for nothing, and leaves out coefficients below 1e-9."""
    pytest.importorskip("highspy")
    for seed in range(3):
        model = network(seed)
        with torch.no_grad():
            model[layer].weight *= 10**power
            model[layer].bias *= 10**power
            model[layer + 2].weight *= 10**-power
        top = largest(model)
        assert refuted(model, below(top + 0.02)) is True
        assert refuted(model, below(top - 0.02)) is False


@pytest.mark.parametrize("half", [0.0, 1e-3, 1.0])
def test_solver_far_from_zero(half: float) -> None:
    """Weights are not differences of numbers that are much larger."""
    pytest.importorskip("highspy")
    for seed in range(4):
        model = network(seed)
        middle = torch.full((1, 2), 1e8).double()
        region = bl.Box(middle - half, middle + half)
        with torch.no_grad():
            model[0].bias -= model[0].weight @ middle[0]
            x = middle + half * (2 * torch.rand(2000, 2).double() - 1)
            top = float(model(x).max())
        for threshold in (top - 1e-3 * abs(top), top - 0.1 * abs(top)):
            assert refuted(model, below(threshold, region)) is False


def test_what_is_no_network_of_relus_is_not_encoded() -> None:
    pytest.importorskip("highspy")
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    assert refuted(model, below(100.0)) is None


class Turned(nn.Module):
    """Values whose samples come last."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 2).double())

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.weight @ x.T).T.sum(1, keepdim=True)


def test_samples_that_come_last_are_not_encoded() -> None:
    pytest.importorskip("highspy")
    torch.manual_seed(0)
    assert refuted(Turned(), below(1.0)) is None


def test_large_layers_are_not_encoded() -> None:
    """Nor is anything as large as the square of their size made."""
    pytest.importorskip("highspy")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 60000), nn.ReLU(), nn.Linear(60000, 1)).double()
    assert refuted(model, below(1e3)) is None


def test_children_cover_their_parents() -> None:
    """Every point of the box satisfies the constraints of a child, whose bound holds for it."""
    model = network(7)
    query = Query.of(model, below(largest(model) + 0.01))
    search = NeuronSplitting(query, time.monotonic() + 20)
    search.begin(torch.arange(1))
    if not search.chunks:
        pytest.skip("proved at once")
    parent = search.chunks[0]
    splits = search.bounder.best_splits(parent.state, 2)
    state = search.bounder.halved(parent.state, splits)
    with torch.no_grad():
        found = search.problem.bounds(state, "beta-crown", "lower")
        points = torch.rand(400, 2).double() * 2 - 1
        row = query.rows.excess(points, model(points), torch.zeros(400, dtype=torch.int64))
        inner = {"linear": model[0](points), "linear_1": model[2](model[1](model[0](points)))}
    covered = torch.zeros(400, dtype=torch.bool)
    for child in range(len(found.lower)):
        inside = torch.ones(400, dtype=torch.bool)
        for name, split in state.splits.items():
            held = split.sign[child] * (inner[name] - split.at[child]) >= 0
            inside &= held.all(1)
        covered |= inside
        assert (row[inside].amin(1) >= found.lower[child].amin() - 1e-9).all()
    assert covered.all()
