"""bl.verify: what it says is true."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import boundlab as bl
from boundlab.verify.bound import Bounder
from boundlab.verify.inputs import InputSplitting
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.portfolio import Portfolio
from boundlab.verify.query import Query

ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU)


def network(seed: int, inputs: int = 3, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(seed)
    act = ACTIVATIONS[seed % len(ACTIVATIONS)]
    layers = nn.Sequential(nn.Linear(inputs, 12), act(), nn.Linear(12, 8), act(), nn.Linear(8, 2))
    return layers.to(dtype).eval()


def searched(model: nn.Module, prop: bl.Property, seconds: float = 3.0) -> InputSplitting:
    """Branch and bound without an attack, which sees no counterexample."""
    query = Query.of(model, prop)
    bounder = Bounder(query.net, query.rows)
    deadline = time.monotonic() + seconds
    search = InputSplitting(bounder, query.first_boxes(), lambda *_: False, deadline)
    search.begin()
    search.run()
    return search


def place(box: bl.Box, where: str, generator: torch.Generator) -> Tensor:
    """A point inside of a box, on its border, or at a corner."""
    share = torch.rand(box.lower.shape, generator=generator)
    if where == "border":
        share[0, 0] = 1.0
    elif where == "corner":
        share = share.round()
    return box.lower + share * (box.upper - box.lower)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    delta=st.sampled_from([1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]),
    where=st.sampled_from(["inside", "border", "corner"]),
)
def test_planted_counterexamples_are_never_proved_away(seed: int, delta: float, where: str) -> None:
    """The threshold lies delta below the output at a member: no search may prove the property."""
    model = network(seed)
    generator = torch.Generator().manual_seed(seed)
    box = bl.Box(torch.zeros(1, 3), torch.ones(1, 3) * 0.3)
    x = place(box, where, generator).clamp(max=0.3)
    with torch.no_grad():
        threshold = float(model(x)[0, 0]) - delta
    prop = bl.Property(box, lambda y: y[:, 0] < threshold)
    assert prop.violated(x, model(x)).all()
    search = searched(model, prop, 0.5)
    assert not search.is_proved
    assert search.counts.add_up(len(search.pool))


@pytest.mark.parametrize("seed", range(4))
def test_what_holds_is_proved(seed: int) -> None:
    model = network(seed)
    box = bl.Box(torch.zeros(1, 3), torch.ones(1, 3))
    with torch.no_grad():
        y = model(torch.rand(20000, 3))[:, 0]
    above = float(y.max() + 0.3 * (y.max() - y.min()))
    below = float(y.max() - 0.02 * (y.max() - y.min()))
    holds = bl.verify(model, bl.Property(box, lambda y: y[:, 0] < above), timeout=60)
    assert holds.status == "holds" and holds.counterexample is None
    prop = bl.Property(box, lambda y: y[:, 0] < below)
    violated = bl.verify(model, prop, timeout=60)
    assert violated.status == "violated"
    found = violated.counterexample
    assert found is not None and prop.violated(found.inputs, model(found.inputs)).all()
    assert box.contains(found.inputs).all()


def test_conjunctions_and_alternatives() -> None:
    """Of |x0 - x1| and friends: clauses with several rows, several clauses, rows of inputs."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    box = bl.Box(torch.zeros(1, 2), torch.ones(1, 2))
    both = bl.Property(box, lambda y: (y[:, 0] < 0.1) | (y[:, 1] < 0.1))  # never both above
    assert bl.verify(model, both).status == "holds"
    inputs = bl.Property(box, lambda y, x: y[:, 0] <= x[:, 0] + 1e-3)
    assert bl.verify(model, inputs).status == "holds"
    inputs = bl.Property(box, lambda y, x: y[:, 0] < x[:, 0] - 0.01)
    assert bl.verify(model, inputs).status == "violated"


def test_empty_unsafe_set_holds() -> None:
    verdict = bl.verify(nn.Linear(2, 1), bl.Property.of_unsafe([]))
    assert verdict.status == "holds"


def test_points_and_zero_width() -> None:
    model = network(0)
    x = torch.full((1, 3), 0.2)
    with torch.no_grad():
        y = float(model(x)[0, 0])
    box = bl.Box(x, x)
    assert bl.verify(model, bl.Property(box, lambda z: z[:, 0] < y + 0.01)).status == "holds"
    assert bl.verify(model, bl.Property(box, lambda z: z[:, 0] < y - 0.01)).status == "violated"
    exactly = bl.verify(model, bl.Property(box, lambda z: z[:, 0] < y), timeout=2)
    assert exactly.status == "violated"


def test_time_is_kept() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    box = bl.Box(-torch.ones(1, 30), torch.ones(1, 30))
    with torch.no_grad():
        largest = float(model(box.sample().repeat(5000, 1).uniform_(-1, 1)).max())
    start = time.monotonic()
    verdict = bl.verify(
        model, bl.Property(box, lambda y: y[:, 0] < 3 * abs(largest) + 3), timeout=4
    )
    assert verdict.status in ("unknown", "holds")
    assert time.monotonic() - start < 8
    assert "domains" in str(verdict)


def test_nan_is_no_proof() -> None:
    """A model whose bounds are infinite or NaN proves nothing."""

    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.exp(1000 * x.sum(1, keepdim=True)) - torch.exp(
                1000 * x.sum(1, keepdim=True)
            )

    box = bl.Box(torch.zeros(1, 2), torch.ones(1, 2))
    try:
        verdict = bl.verify(Broken(), bl.Property(box, lambda y: y[:, 0] < 1), timeout=3)
    except bl.BoundlabError:
        return
    assert verdict.status == "unknown"


def test_double_precision_and_nets() -> None:
    model = network(4, dtype=torch.float64)
    x = torch.rand(1, 3, dtype=torch.float64)
    label = int(model(x).argmax())
    net = bl.capture(model, x.repeat(2, 1))
    verdict = bl.verify(net, bl.robust(x, 1e-3, label=label))
    assert verdict.status == "holds" and math.isinf(verdict.bound)


def test_mistakes() -> None:
    with pytest.raises(bl.ArgumentError, match="takes a property"):
        bl.verify(network(0), bl.Linf(torch.zeros(1, 3), 0.1))  # type: ignore[arg-type]
    with pytest.raises(bl.ArgumentError, match="timeout"):
        bl.verify(network(0), bl.robust(torch.zeros(1, 3), 0.1, label=0), timeout=-1)


def test_neuron_splitting_tries_the_corners_of_its_lines() -> None:
    """They are vertices of the box, and one of them is the violation."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 1)).double()
    with torch.no_grad():
        model[2].weight.abs_()  # so that the value is convex, and largest at a vertex
        model[2].weight.mul_(0.02)[0, 0] = 1.0
        best = float(model(model[0].weight[0].sign()[None]))
    box = bl.Box(-torch.ones(1, 30).double(), torch.ones(1, 30).double())
    query = Query.of(model, bl.Property(box, lambda y: y[:, 0] < best - 1e-6))

    def tried(x: Tensor, clause: Tensor) -> bool:
        assert (x.abs() == 1).all() and (clause == 0).all() and x.shape[1] == 30
        with torch.no_grad():
            return bool((model(x) >= best - 1e-6).any())

    search = NeuronSplitting(query, time.monotonic() + 20, tried)
    search.begin(torch.arange(1))
    search.run()
    assert search.found and not search.is_proved


class Flat(nn.Module):
    """The best line below x1^2 + sin(4 x1) over [-2, 2] is flat."""

    def forward(self, x: Tensor) -> Tensor:
        found = 2 * x[:, 0] + x[:, 1].square() + torch.sin(4 * x[:, 1])
        return found.unsqueeze(1)


def test_inputs_that_move_no_line_are_halved_too() -> None:
    """By slopes alone x0 is halved for ever."""
    region = bl.Box(torch.tensor([[0.0, -2.0]]), torch.tensor([[1.0, 2.0]]))
    prop = bl.Property(region, lambda y: y[:, 0] > -0.9)
    assert searched(Flat(), prop, seconds=20.0).is_proved


@pytest.mark.parametrize(
    ("bound", "seconds", "proved", "lags"),
    [(-5.0, 1e3, 0, True), (-0.01, 1e3, 0, False), (-5.0, 1.0, 0, False), (-5.0, 1e3, 7, False)],
)
def test_splits_of_neurons_wait_only_where_they_are_behind(
    bound: float, seconds: float, proved: int, lags: bool
) -> None:
    """By their bound, by when they expect to end, and with nothing proved."""
    region = bl.Box(torch.zeros(1, 3), torch.ones(1, 3))
    search = Portfolio(network(0), bl.Property(region, lambda y: y[:, 0] > 0), math.inf)
    inputs = SimpleNamespace(is_stuck=False, pool=SimpleNamespace(bound=-0.1))
    search.inputs = cast(InputSplitting, inputs)
    inputs.expected_seconds = 100.0
    assert not search.neurons_lag
    counts = SimpleNamespace(proved=proved)
    neurons = SimpleNamespace(counts=counts, bound=bound, expected_seconds=seconds)
    search.neurons = cast(NeuronSplitting, neurons)
    assert search.neurons_lag == lags
    inputs.is_stuck = True
    assert not search.neurons_lag
