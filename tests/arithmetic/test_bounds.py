"""Bounds that are proved for an arithmetic: no executed value outside of them, without
tolerance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from boundlab.arithmetic import Pointwise, Sums, rounds
from boundlab.arithmetic.arithmetic import Format, gamma
from boundlab.arithmetic.table import ROWS
from tests.arithmetic.attack import METHODS, Counts, attack_case, attack_network
from tests.operator_cases import CASES

OPERATORS = (
    "relu", "gelu", "tanh", "sigmoid", "silu", "softplus, beta -1.0, threshold 20", "exp", "abs",
    "linear", "conv2d", "layer_norm", "softmax", "max_pool2d", "batch_norm2d", "mean",
)  # fmt: skip


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)
    ).eval()


@pytest.mark.parametrize("name", [name for name in OPERATORS if name in CASES])
@pytest.mark.parametrize("arithmetic", ["float32", "float64"])
def test_operators(name: str, arithmetic: str) -> None:
    counts = Counts()
    dtype = {"float32": torch.float32, "float64": torch.float64}[arithmetic]
    attack_case(name, counts, arithmetic, 2, 0, dtype)
    assert counts.attacked and not counts.violated, counts.worst


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_every_operator(name: str) -> None:
    """Those of which nothing is known are refused by name."""
    counts = Counts()
    try:
        attack_case(name, counts, "float32", 4, 1, torch.float32)
    except bl.BoundlabError:
        return
    assert not counts.violated, counts.worst


@pytest.mark.parametrize("name", ["cnn", "mlp", "attention-causal", "softmax"])
def test_networks(name: str) -> None:
    counts = Counts()
    attack_network(name, counts, "float32", 2, 0)
    assert counts.attacked and not counts.violated, counts.worst


def test_the_attack_finds_violations_without_the_mode() -> None:
    counts = Counts()
    attack_case("linear", counts, None, 4, 0, torch.float32)
    assert counts.violated


class Cancelling(nn.Module):
    """Its weights cancel: exactly it is x -> 1 - 1 + 0 x, executed anything between -16 and 16."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 1, bias=False)
        with torch.no_grad():
            rows = [[1e8, 1e8], [1e8, -1e8], [1e8, 1e8], [1e8, -1e8]]
            self.first.weight.copy_(torch.tensor(rows))
            self.first.bias.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
            self.last.weight.copy_(torch.tensor([[1.0, 1.0, -1.0, -1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(torch.relu(self.first(x)))
        return y


def members(x: Tensor, radius: float, count: int = 64) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    share = torch.rand(count, *x.shape, generator=generator) * 2 - 1
    moved = x + radius * share
    return torch.minimum(torch.maximum(moved, x - radius), x + radius)


@pytest.mark.parametrize("method", METHODS)
def test_weights_that_cancel(method: str) -> None:
    model, x = Cancelling().eval(), torch.rand(4, 2, generator=torch.Generator().manual_seed(0))
    region = bl.Box(x - 0.01, x + 0.01)
    values = torch.stack([model(point) for point in members(x, 0.01)]).detach().double()
    net = bl.capture(model, x)
    proved = net.bounds(region, method=method, arithmetic="float32")
    assert (proved.lower <= values).all() and (values <= proved.upper).all()
    real = net.bounds(region, method=method, arithmetic="real")
    exact = torch.stack([model.double()(point.double()) for point in members(x, 0.01)])
    assert (real.lower <= exact).all() and (exact <= real.upper).all()


def test_plain_bounds_of_weights_that_cancel_are_wrong() -> None:
    """Which is why the mode exists: in single precision they are a point beside the values."""
    model, x = Cancelling().eval(), torch.rand(4, 2, generator=torch.Generator().manual_seed(0))
    values = torch.stack([model(point) for point in members(x, 0.01)])
    plain = bl.capture(model, x).bounds(bl.Box(x - 0.01, x + 0.01), method="crown")
    assert ((values < plain.lower) | (values > plain.upper)).any()


@pytest.mark.parametrize("method", ["ibp", "crown"])
def test_long_sums(method: str) -> None:
    """A million terms, of which a running sum in single precision loses the most."""
    count = 1_000_000
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.rand(2, count, generator=generator), torch.randn(count, generator=generator)
    order = torch.randperm(count, generator=generator)

    def total(x: Tensor, weight: Tensor = weight) -> Tensor:
        return torch.stack([x.sum(1), F.linear(x, weight)], 1)

    values = [total(x), total(x.flip(1), weight.flip(0)), total(x[:, order], weight[order])]
    values.append(torch.stack([x.cumsum(1)[:, -1], (x * weight).cumsum(1)[:, -1]], 1))
    bounds = bl.capture(total, x).bounds(bl.Box(x, x), method=method, arithmetic="float32")
    for value in values:
        assert (bounds.lower <= value.double()).all() and (value.double() <= bounds.upper).all()
    assert bounds.width.isfinite().all()


def test_deep_networks() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(200) for layer in (nn.Linear(3, 3), nn.Tanh())]
    model, x = nn.Sequential(*layers).eval(), torch.rand(2, 3)
    bounds = bl.capture(model, x).bounds(bl.Linf(x, 0.01), method="crown-ibp", arithmetic="float32")
    for point in members(x, 0.0099, 8):
        value = model(point).double()
        assert (bounds.lower <= value).all() and (value <= bounds.upper).all()


def test_denormal_numbers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e-22)
    x = torch.rand(3, 2)
    bounds = bl.capture(model.eval(), x).bounds(bl.Box(x - 0.1, x + 0.1), arithmetic="float32")
    for point in members(x, 0.1):
        value = model(point).double()
        assert (bounds.lower <= value).all() and (value <= bounds.upper).all()


@pytest.mark.parametrize("method", METHODS)
def test_what_may_overflow_has_no_bounds(method: str) -> None:
    """inf - inf is not a number, and clamping hides what was infinite."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Hardtanh()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(3e25)
    x = torch.rand(3, 2) + 1
    bounds = bl.capture(model, x).bounds(bl.Linf(x, 0.1), method=method, arithmetic="float32")
    assert torch.isneginf(bounds.lower).all() and torch.isposinf(bounds.upper).all()
    margins = bl.capture(model, x).margins(
        bl.Linf(x, 0.1), torch.zeros(3, dtype=torch.int64), method=method, arithmetic="float32"
    )
    assert torch.isneginf(margins).all()


@pytest.mark.parametrize("arithmetic", ["real", "float32"])
@pytest.mark.parametrize("ball", [bl.Linf, bl.L2, bl.L1])
def test_margins_and_lines_hold(arithmetic: str, ball: type) -> None:
    model = small_network()
    x = torch.rand(5, 3)
    labels = model(x).argmax(1)
    net, region = bl.capture(model, x), ball(x, 0.05, lower=0.0, upper=1.0)
    margins = net.margins(region, labels, arithmetic=arithmetic)
    lines = net.linear_bounds(region, arithmetic=arithmetic)
    assert margins.dtype == torch.float64
    for seed in range(16):
        point = region.sample(torch.Generator().manual_seed(seed))
        inside = region.contains(point)
        y = model(point).double()
        own = y.gather(1, labels[:, None])
        least = (own - y).scatter(1, labels[:, None], math.inf).amin(1)
        assert (margins.amin(1)[inside] <= least[inside]).all()
        (name,) = lines.lower_A
        at = torch.einsum("bon,bn->bo", lines.lower_A[name], point.double()) + lines.lower_b
        assert (at[inside] <= y[inside]).all()


def test_little_is_lost() -> None:
    model, x = small_network(), torch.rand(4, 3)
    net, region = bl.capture(model, x), bl.Linf(x, 0.05)
    plain = net.bounds(region)
    proved = net.bounds(region, arithmetic="float32")
    assert (proved.upper - proved.lower <= 1.01 * (plain.upper - plain.lower) + 1e-4).all()


def test_answers_without_the_mode_do_not_change() -> None:
    model, x = small_network(), torch.rand(4, 3)
    net, region = bl.capture(model, x), bl.Linf(x, 0.05)
    before = net.bounds(region)
    net.bounds(region, arithmetic="real")
    after = net.bounds(region)
    assert torch.equal(before.lower, after.lower) and torch.equal(before.upper, after.upper)


def test_operators_without_a_row_are_refused_by_name() -> None:
    x, scale, zero = torch.rand(2, 3), torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int32)
    quantize = torch.fake_quantize_per_channel_affine
    net = bl.capture(lambda x: quantize(x, scale, zero, 1, -8, 7), x)
    with pytest.raises(bl.UnsupportedOperator, match=r"aten\.fake_quantize_per_channel_affine"):
        net.bounds(bl.Linf(x, 0.1), arithmetic="float32")
    net.bounds(bl.Linf(x, 0.1))


def test_bad_names_are_answered() -> None:
    x = torch.rand(2, 3)
    net = bl.capture(small_network(), x)
    with pytest.raises(bl.ArgumentError, match="'real', 'float32', 'float64'"):
        net.bounds(bl.Linf(x, 0.1), arithmetic="float23")
    with pytest.raises(bl.ArgumentError, match="would round"):
        bl.capture(small_network().double(), x.double()).bounds(
            bl.Linf(x.double(), 0.1), arithmetic="float32"
        )


def test_models_in_train_mode_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).train()
    x = torch.rand(4, 3)
    with pytest.raises(bl.ArgumentError, match="eval mode"):
        bl.capture(model, x).bounds(bl.Linf(x, 0.1), arithmetic="real")


def test_states_of_another_arithmetic_are_refused() -> None:
    model, x = small_network(), torch.rand(4, 3)
    net, region = bl.capture(model, x), bl.Linf(x, 0.05)
    state = net.bounds(region, state=bl.BoundState()).state
    with pytest.raises(bl.ArgumentError, match="another arithmetic"):
        net.bounds(region, state=state, arithmetic="real")


def test_a_second_row_is_an_error() -> None:
    with pytest.raises(bl.ArgumentError, match="already has a row"):
        rounds(torch.ops.aten.relu, row=Pointwise(1))


def test_gamma() -> None:
    unit = Format.of(torch.float32).unit
    assert unit == 2.0**-24
    assert gamma(1, unit) == pytest.approx(unit)
    assert gamma(1 << 23, unit) == math.inf  # nothing is left
    assert gamma(1000, unit) > 1000 * unit


def test_rows_of_sums_count_their_terms() -> None:
    """A row that counted too few would be found by this sum, whose error grows with each term."""
    count = 4096
    x = torch.full((1, count), 1 / 3)
    x[0, 0] = 2.0**12
    exact = x.double().sum()
    executed = float(np.cumsum(x[0].numpy(), dtype=np.float32)[-1])  # one after the other
    net = bl.capture(lambda x: x.sum(1), x)
    bounds = net.bounds(bl.Box(x, x), method="ibp", arithmetic="float32")
    assert abs(executed - exact) > 2.0**-24 * exact
    assert bounds.lower <= executed <= bounds.upper
    assert isinstance(ROWS[torch.ops.aten.sum], Sums)
