"""bl.attack: what it reports is true, and what is easy to find is found."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import boundlab as bl
from boundlab.attacks.search import POINTS, Budget
from boundlab.relaxations.interval import Interval
from boundlab.specs.vnnlib import parse_vnnlib

Around = Callable[[Tensor], bl.Region]
REGIONS: dict[str, Around] = {
    "box": lambda x: bl.Box(x - 0.3, x + 0.2),
    "linf": lambda x: bl.Linf(x, 0.3, lower=0.0, upper=1.0),
    "linf, an eps for each element": lambda x: bl.Linf(x, torch.linspace(0, 0.5, 4)[None]),
    "l2": lambda x: bl.L2(x, 0.5),
    "l2, cut": lambda x: bl.L2(x, 0.5, lower=0.0, upper=1.0),
    "l1": lambda x: bl.L1(x, 0.8, lower=0.0, upper=1.0),
    "l3": lambda x: bl.Lp(x, 3.0, 0.4),
    "l0": lambda x: bl.L0(x, 2),
}


def network(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    return layers.to(dtype).eval()


def judged(model: nn.Module, found: bl.Attack, region: bl.Region, labels: Tensor) -> None:
    """Everything that an attack says is so."""
    outputs = model(found.inputs)
    assert torch.equal(outputs, found.outputs)
    assert region.contains(found.inputs).all()
    own = outputs.gather(1, labels[:, None])
    others = outputs.scatter(1, labels[:, None], -torch.inf).amax(1, keepdim=True)
    assert torch.equal(found.violated, (others >= own).squeeze(1))
    torch.testing.assert_close(found.margin, (own - others).squeeze(1))


@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize("seed", range(3))
def test_reports_members_and_their_outputs(name: str, seed: int) -> None:
    model = network(seed)
    x = torch.rand(6, 4)
    labels = model(x).argmax(1)
    region = REGIONS[name](x)
    found = bl.attack(model, region, labels, seed=seed)
    judged(model, found, region, labels)
    proved = (bl.capture(model, x).margins(region, labels, method="crown") > 0).all(1)
    assert not (found.violated & proved).any()
    tried = torch.stack([region.sample() for _ in range(200)])  # no worse than sampling
    outputs = model(tried.flatten(0, 1)).unflatten(0, (200, 6))
    own = outputs.gather(2, labels.expand(200, 6)[..., None]).squeeze(2)
    others = outputs.scatter(2, labels.expand(200, 6)[..., None], -torch.inf).amax(2)
    assert (found.margin <= torch.where(found.violated, 0, (own - others).amin(0)) + 1e-6).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), delta=st.sampled_from([1e-1, 1e-2, 1e-3]))
def test_planted_violations_are_found(seed: int, delta: float) -> None:
    """A threshold delta beyond the best that a fine search sees."""
    model = network(seed)
    region = bl.Box(torch.zeros(1, 4), torch.ones(1, 4))
    with torch.no_grad():
        y = model(torch.rand(4000, 4))[:, 0]
    threshold = float(y.max()) - delta
    prop = bl.Property(region, lambda y: y[:, 0] < threshold)
    found = bl.attack(model, prop, restarts=64)
    assert found.violated.all() and prop.violated(found.inputs, model(found.inputs)).all()


def test_boxes_in_double_precision() -> None:
    """Ends that single precision does not have: what is reported lies inside, exactly."""
    low, up = torch.full((1, 4), 0.1).double() + 1e-12, torch.full((1, 4), 0.1).double() + 1e-9
    prop = bl.Property(bl.Box(low, up), lambda y: y[:, 0] > 1e9)
    found = bl.attack(network(), prop, restarts=1)
    assert found.inputs.dtype == torch.float64
    assert ((low <= found.inputs) & (found.inputs <= up)).all()
    assert found.violated.all()


def test_strict_inequalities() -> None:
    """y <= 0 is safe and y is 0 everywhere: the border of the unsafe set is no violation."""
    box = bl.Box(torch.zeros(1, 2), torch.ones(1, 2))
    flat = lambda x: (0 * x).sum(1, keepdim=True)
    assert not bl.attack(flat, bl.Property(box, lambda y: y[:, 0] <= 0), restarts=5).violated.any()
    assert bl.attack(flat, bl.Property(box, lambda y: y[:, 0] < 0), restarts=5).violated.all()


def test_several_clauses_and_inputs() -> None:
    """Both rows of a clause must hold, and rows may speak of inputs."""
    box = bl.Box(torch.zeros(1, 2), torch.ones(1, 2))
    itself = lambda x: x
    both = bl.Property(box, lambda y, x: (y[:, 0] < 0.9) | (y[:, 1] < 0.9 * x[:, 0]))
    found = bl.attack(itself, both, restarts=64)
    assert found.violated.all()
    assert found.inputs[0, 0] >= 0.9 and found.inputs[0, 1] >= 0.9 * found.inputs[0, 0]
    never = bl.Property(box, lambda y: (y[:, 0] < 0.9) | (y[:, 0] > 0.1))
    assert not bl.attack(itself, never, restarts=64).violated.any()


def test_model_without_gradients() -> None:
    steps = lambda x: torch.stack([x.round().sum(1), torch.full((len(x),), 1.5)], 1)
    region = bl.Box(torch.zeros(3, 4), torch.ones(3, 4))
    assert bl.attack(steps, region, [0, 1, 1]).violated.all()


def test_outputs_that_are_nan_are_no_violations() -> None:
    broken = lambda x: torch.stack([x.sum(1) * torch.nan, x.sum(1)], 1)
    region = bl.Box(torch.zeros(3, 4), torch.ones(3, 4))
    assert not bl.attack(broken, region, [0, 1, 0], restarts=2).violated.any()


def test_dead_outputs() -> None:
    """An output behind a ReLU that is off where the search begins has no gradient there."""

    def model(x: Tensor) -> Tensor:
        return torch.relu(torch.stack([0.1 + 0 * x[:, 0], x.sum(1) - 97.0], 1))

    region = bl.Box(torch.zeros(1, 100), torch.ones(1, 100))
    assert bl.attack(model, region, [0], restarts=128).violated.all()


@pytest.mark.parametrize("ball", [bl.Linf, bl.L2])
def test_elements_go_back_to_the_end_of_the_range(ball: type[bl.Linf] | type[bl.L2]) -> None:
    """Half of the elements must go up and the others stay at 0, where they cannot go down."""

    def model(x: Tensor) -> Tensor:
        return torch.stack([torch.full((len(x),), 0.45), (x[:, :15] - x[:, 15:]).mean(1)], 1)

    region = ball(torch.zeros(2, 30), 0.5 if ball is bl.Linf else 0.5 * 15**0.5, 0.0, 1.0)
    assert bl.attack(model, region, [0, 0], restarts=1).violated.all()


def test_value_without_samples() -> None:
    model = nn.Linear(4, 2)
    prop = bl.Property(bl.Box(torch.zeros(4), torch.ones(4)), lambda y: y[:, 0] > y[:, 1] + 100)
    found = bl.attack(model, prop, restarts=2)
    assert found.inputs.shape == (1, 4) and found.violated.all()
    net = bl.capture(model, torch.zeros(4), batched=False)
    assert bl.attack(net, prop, restarts=2).violated.all()


def test_same_seed_same_answer() -> None:
    model, x = network(), torch.rand(5, 4)
    region, labels = bl.Linf(x, 0.05), model(x).argmax(1)
    first, second = (bl.attack(model, region, labels, seed=3, restarts=2) for _ in range(2))
    assert torch.equal(first.inputs, second.inputs)


class Triangle(bl.Region):
    """The triangle of (0, 0), (1, 0), (0, 1) for each sample: what one must say of a region."""

    CORNERS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])

    def __init__(self, samples: int) -> None:
        self.count = samples

    @property
    def centre(self) -> Tensor:
        return torch.full((self.count, 2), 1 / 3)

    def hull(self) -> Interval:
        return Interval(torch.zeros(self.count, 2), torch.ones(self.count, 2))

    def minimum(self, coefficients: Tensor) -> Tensor:
        return (coefficients @ self.CORNERS.T).amin(-1)

    def sample(self, generator: torch.Generator | None = None, batched: bool = True) -> Tensor:
        shares = torch.rand(self.count, 3, generator=generator)
        return shares / shares.sum(1, keepdim=True) @ self.CORNERS


def test_region_of_ones_own() -> None:
    """Without contains: members are random ones, and those at which slopes are least."""
    model = lambda x: torch.stack([x[:, 0] + x[:, 1], torch.full((len(x),), 0.02)], 1)
    found = bl.attack(model, Triangle(3), [0, 0, 1])
    assert found.violated.all()
    assert (found.inputs >= 0).all() and (found.inputs.sum(1) <= 1 + 1e-6).all()


def test_words() -> None:
    torch.manual_seed(1)
    region = bl.Words(torch.rand(1, 5, 4), torch.rand(1, 5, 3, 4), budget=2)
    goal = region.minimum(torch.ones(1, 1, 5, 4))[0]  # the least sum that words can have
    model = lambda e: torch.stack([e.sum((1, 2)) - goal - 1e-4, 0 * e.sum((1, 2))], 1)
    found = bl.attack(model, region, [0])
    assert found.violated.all()
    changed = (found.inputs != region.x).any(2).sum(1)
    assert (changed <= 2).all()


def test_time_is_kept() -> None:
    def slow(x: Tensor) -> Tensor:
        time.sleep(0.02)
        return torch.stack([x.sum(1) + 1, -x.sum(1)], 1)

    start = time.monotonic()
    bl.attack(slow, bl.Box(torch.zeros(1, 3), torch.ones(1, 3)), [0], restarts=10**6, timeout=0.3)
    assert time.monotonic() - start < 5  # of hours


def test_mistakes() -> None:
    region = bl.Linf(torch.zeros(2, 4), 0.1)
    prop = bl.robust(torch.zeros(1, 4), 0.1, label=0)
    with pytest.raises(bl.ArgumentError, match="labels are missing"):
        bl.attack(network(), region)
    with pytest.raises(bl.ArgumentError, match="leave out the labels"):
        bl.attack(network(), prop, [0])
    with pytest.raises(bl.ArgumentError, match="restarts >= 1"):
        bl.attack(network(), region, [0, 0], restarts=0)
    with pytest.raises(bl.ArgumentError, match="a region or a property"):
        bl.attack(network(), torch.zeros(2, 4), [0, 0])  # type: ignore[arg-type]
    net = bl.capture(lambda x, y: x + y, torch.zeros(2, 4), torch.zeros(2, 4))
    with pytest.raises(bl.ArgumentError, match="moves one input"):
        bl.attack(net, region, [0, 0])
    assert len(bl.attack(network(), bl.Property.of_unsafe([])).violated) == 0


def test_no_samples() -> None:
    found = bl.attack(network(), bl.Linf(torch.zeros(0, 4), 0.1), torch.zeros(0, dtype=torch.int64))
    assert found.inputs.shape == (0, 4) and len(found.violated) == 0
    assert "0 of 0" in str(found)


class Counting(nn.Module):
    """The first element of its inputs; how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x[:, :1]


def test_cases_that_do_not_fit_into_the_time_are_left_out() -> None:
    """A list of intervals in each of which little is unsafe."""
    parts = [f"(and (>= X_0 {i}) (<= X_0 {i + 1}) (>= Y_0 {i + 2}))" for i in range(300)]
    declared = "(declare-const X_0 Real) (declare-const Y_0 Real)"
    prop = parse_vnnlib(f"{declared} (assert (or {' '.join(parts)}))")
    model = Counting()
    found = bl.attack(model, prop, timeout=0.0)
    assert not found.violated.any()
    assert found.margin.isfinite().all()
    assert model.calls < 30


def test_every_case_has_its_turn() -> None:
    parts = [f"(and (>= X_0 {i}) (<= X_0 {i + 1}) (>= Y_0 {2 * i - 5}))" for i in range(10)]
    declared = "(declare-const X_0 Real) (declare-const Y_0 Real)"
    prop = parse_vnnlib(f"{declared} (assert (or {' '.join(parts[6:])} {parts[0]}))")
    for seed in range(5):
        assert bl.attack(Counting(), prop, restarts=1, seed=seed).violated.all()


def test_slow_models_move_fewer_points() -> None:
    soon = Budget(steps=5, restarts=5, deadline=time.monotonic() + 1000.0)
    assert soon.points(1e-3) == POINTS
    assert 2 <= soon.points(100.0) <= 3
    assert soon.points(1e6) == 1
    assert Budget(steps=5, restarts=5).points(1e6) == POINTS
    assert Budget(steps=5, restarts=5, deadline=0.0).points(1.0) == 1
    assert Budget(steps=5, restarts=5, deadline=0.0).points(0.0) == POINTS
