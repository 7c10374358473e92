"""No search proves away what was planted, or cuts it off; what is odd ends in an answer."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.specs.formula import And, Linear, Or
from boundlab.verify import rounding
from boundlab.verify.clip import clip
from boundlab.verify.lines import Lines
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.query import Query
from tests.verify.further import FURTHER, planted_further, status_of
from tests.verify.planted import Blind, Stated, is_gap, planted, search

WAYS = ("inputs", "neurons", "blind", "verify")
UNIT = bl.Box(torch.zeros(1, 3), torch.ones(1, 3))


def check(seed: int, seconds: float) -> None:
    one = planted(seed)
    for way in WAYS:
        status = search(one, way, seconds, seed)
        assert status != "holds" or is_gap(one), (way, one.what)


@pytest.mark.parametrize("seed", range(4))
def test_planted(seed: int) -> None:
    check(seed, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_more_planted(seed: int) -> None:
    check(seed, 0.3)


@pytest.mark.parametrize("seed", [1024, 1133])
def test_rounding_that_random_members_do_not_show(seed: int) -> None:
    """Double precision has no better copy; needles and corners round where nobody looked."""
    check(seed, 0.2)


class Steep(nn.Module):
    """Rounds only at one corner of the unit box, by as much as it is steep."""

    def __init__(self, steep: float, at: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 1), 0.1))
        self.at, self.steep = at, steep

    def forward(self, x: Tensor) -> Tensor:
        return self.steep * torch.relu(x @ self.weight - self.at)


def test_proofs_that_the_model_contradicts_are_none() -> None:
    ones = torch.ones(1, 3)
    model = Steep(1e6, 0.29999998211860657)  # 3 * 0.1 in single precision is more than it is
    with torch.no_grad():
        threshold = float(model(ones)) - 1e-3
    prop = bl.Property(UNIT, lambda y: y[:, 0] < threshold)
    assert prop.violated(ones, model(ones)).all()
    blind = Blind(model, prop, time.monotonic() + 60)
    blind.bounds()
    assert not blind.proved
    # had nobody looked at the corner
    rows = replace(blind.query.rows, slack=torch.zeros(1, 1).double())
    blind.query = replace(blind.query, rows=rows)
    blind.begin()
    assert not blind.proved and blind.doubted
    blind.believe()
    assert not blind.proved and not blind.doubted and (blind.query.rows.slack > 1e-3).all()


def test_slack_is_never_zero() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    query = Query.of(model, bl.Property(UNIT, lambda y: y[:, 0] < 1))
    assert (query.rows.slack > 0).all() and (query.rows.slack < 1e-8).all()


@pytest.mark.parametrize("seed", range(3))
def test_children_of_neurons_cover_their_parents(seed: int) -> None:
    """A point satisfies the constraints of a domain that was kept, unless its row is positive."""
    torch.manual_seed(seed)
    act = (nn.ReLU, nn.Tanh, nn.Sigmoid)[seed]
    model = nn.Sequential(nn.Linear(3, 6), act(), nn.Linear(6, 6), act(), nn.Linear(6, 1)).double()
    box = bl.Box(UNIT.lower.double(), UNIT.upper.double())
    x = torch.rand(2000, 3, dtype=torch.float64)
    with torch.no_grad():
        y = model(x)[:, 0]
    threshold = float(y.quantile(0.97))
    query = Query.of(model, bl.Property(box, lambda z: z[:, 0] < threshold))
    found = NeuronSplitting(query, time.monotonic() + 20)
    found.begin(torch.arange(1))
    for _ in range(4):
        if found.chunks:
            found.round()
    assert math.isfinite(found.bound)
    violations, values = x[y >= threshold], (threshold - y)[y >= threshold]
    with torch.no_grad():
        first = model[0](violations)
        inner = [first, model[2](model[1](first))]
    covered = torch.zeros(len(violations), dtype=torch.bool)
    for chunk in (*found.chunks, *found.stuck):
        for k in range(len(chunk)):
            inside = torch.ones(len(violations), dtype=torch.bool)
            for name, h in zip(found.bounder.brancher.nodes(chunk.state), inner, strict=True):
                interval = chunk.state.intervals[name]
                here = (h >= interval.lower[k] - 1e-9) & (h <= interval.upper[k] + 1e-9)
                split = chunk.state.splits.get(name)
                if split is not None:
                    here &= split.sign[k] * (h - split.at[k]) >= -1e-9
                inside &= here.all(1)
            assert (values[inside] >= chunk.bound[k] - 1e-9).all()
            covered |= inside
    assert covered.all() and found.counts.add_up(found.open)


def test_infinite_bounds_prove_nothing() -> None:
    low, up = UNIT.lower.double(), UNIT.upper.double()
    a, b = torch.zeros(1, 1, 3).double(), torch.full((1, 1), math.inf).double()
    assert (Lines(a, b).least(low, up) == -math.inf).all()
    found = clip(a + 1, b, low, up)
    assert not found[2].any() and torch.equal(found[0], low) and torch.equal(found[1], up)


def test_nothing_unsafe_holds() -> None:
    prop = bl.robust(torch.zeros(1, 3), 0.1, label=0)
    assert bl.verify(nn.Linear(3, 1), prop).status == "holds"  # there is no other class
    other = bl.Property.of_unsafe([(UNIT, Stated(Or(()))), (UNIT, Stated(Or(())))])
    assert bl.verify(nn.Linear(3, 2), other).status == "holds"


def test_counterexamples_lie_in_the_region_of_their_case() -> None:
    """Cases without clauses do not count: the second region is that of the first clause."""
    far = bl.Box(UNIT.lower + 5, UNIT.upper + 5)
    parts = [(far, Stated(Or(()))), (UNIT, Stated(Linear.output(0) >= -10))]
    prop = bl.Property.of_unsafe(parts)
    model = nn.Linear(3, 1)
    blind = Blind(model, prop, time.monotonic() + 5)
    blind.bounds()
    assert super(Blind, blind).confirm(torch.full((3,), 0.5).double(), 0)


def test_values_without_samples_are_refused() -> None:
    box = bl.Box(torch.zeros(3), torch.ones(3))
    with pytest.raises(bl.ArgumentError, match="one sample"):
        bl.verify(nn.Linear(3, 1), bl.Property(box, lambda y: y[:, 0] < 100), timeout=2)
    assert bl.verify(nn.Linear(3, 1), bl.Property(box, lambda y: y[:, 0] < -9)).status == "violated"


def test_exported_programs() -> None:
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        nn.Linear(3, 1), (torch.rand(2, 3),), dynamic_shapes=({0: batch},)
    )
    assert bl.verify(program, bl.Property(UNIT, lambda y: y[:, 0] < 9)).status == "holds"


def test_steps_have_no_slopes_to_choose_splits_by() -> None:
    class Step(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.sum(1, keepdim=True) > 2.9).to(x.dtype)

    query = Query.of(Step(), bl.Property(UNIT, lambda y: y[:, 0] < 0.5))
    found = NeuronSplitting(query, time.monotonic() + 2)
    found.begin(torch.arange(1))
    found.run()
    assert not found.is_proved and found.counts.add_up(found.open)


@pytest.mark.parametrize("seed", range(len(FURTHER)))
def test_planted_further(seed: int) -> None:
    kind = list(FURTHER)[seed]
    one = planted_further(seed, kind)
    assert status_of(one, "stages", 0.1) != "holds", one.what


@pytest.mark.parametrize(("seed", "kind"), [(1, "deeper"), (80, "apart")])
def test_solver_where_nothing_moves(seed: int, kind: str) -> None:
    """Values that are points: the solver once called what it was given infeasible."""
    one = planted_further(seed, kind)
    assert status_of(one, "stages", 0.3) != "holds", one.what


def test_affine_models_that_bounds_leave_open() -> None:
    """Nothing can be split, and the solver has no ReLU."""
    model = nn.Linear(3, 1)
    with torch.no_grad():
        most = float(model(UNIT.upper * (model.weight > 0)))
    prop = bl.Property(UNIT, lambda y: y[:, 0] <= most + 1e-9)
    blind = Blind(model, prop, time.monotonic() + 2)
    blind.slice = 0.1
    blind.run()
    assert blind.verdict().status == "unknown"


def test_all_inputs_are_unsafe() -> None:
    trivial = [(UNIT, Stated(And(())))]
    verdict = bl.verify(nn.Linear(3, 1), bl.Property.of_unsafe(trivial), timeout=5)
    assert verdict.status == "violated"


class Slow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.01 * len(x))
        return x


def test_measuring_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "VALUES", 3)
    blind = Blind(Slow(), bl.Property(UNIT, lambda y: y[:, 0] < 9), time.monotonic() + 0.3)
    blind.run()
    verdict = blind.verdict()
    assert verdict.status == "unknown" and verdict.seconds < 20
