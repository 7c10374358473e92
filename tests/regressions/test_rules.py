"""Operators: wrong answers that bounding tools have given, one test each; and those that attacks on
boundlab itself, on perturbed weights and on masked scores have found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundlab as bl
from boundlab.rules.registry import unregister
from tests.helpers.contract import METHODS, assert_inside, check_sound, steps
from tests.helpers.exact import answers, assert_exact, assert_holds, exact_affine
from tests.helpers.tensors import draw

# -- convolution, pooling, padding -----------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"dilation": 2},
        {"groups": 4},
        {"groups": 4, "dilation": 2, "padding": 2},
        {"dilation": 3, "stride": 2, "padding": 3},
    ],
    ids=str,
)
def test_dilated_and_depthwise_convolution(options: dict[str, Any]) -> None:
    layer = nn.Conv2d(4, 8, 3, **options).double()
    x = draw(2, 4, 7, 7)
    exact = exact_affine(layer, x, 0.1)
    for method, bounds in answers(layer, bl.Linf(x, 0.1)).items():
        assert_exact(bounds, *exact, method)


def test_dilated_depthwise_convolutions_behind_each_other() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 2, 3, groups=2, dilation=2),
        nn.ReLU(),
        nn.Conv2d(2, 4, 3, groups=2, padding=2, dilation=2),
    ).double()
    check_sound(model, (bl.Linf(draw(2, 2, 6, 6), 0.3),))


def test_padding_never_wins_a_maximum() -> None:
    """Padding never wins: with negative inputs a padded zero would."""
    pool, x = nn.MaxPool2d(3, 2, 1), draw(2, 1, 5, 5) - 6
    points = [x - 0.5, x + 0.5, *[x + 0.5 * draw(*x.shape, seed=s).clamp(-1, 1) for s in range(50)]]
    found = answers(pool, bl.Linf(x, 0.5))
    assert_exact(found["ibp"], pool(x - 0.5), pool(x + 0.5), "ibp")
    for method, bounds in found.items():
        assert (bounds.upper < 0).all(), method
        assert_holds(bounds, torch.stack([pool(point) for point in points]), method)


@pytest.mark.parametrize("value", [3.0, -2.0, 0.25])
def test_padding_has_the_value_that_was_asked_for(value: float) -> None:
    f = lambda x: F.pad(x, (1, 2), value=value)
    x = draw(2, 3)
    for method, bounds in answers(f, bl.Linf(x, 0.1)).items():
        assert_exact(bounds, f(x - 0.1), f(x + 0.1), method)


@pytest.mark.parametrize(
    "layer",
    [
        nn.ReflectionPad2d((1, 2, 2, 1)),
        nn.Conv2d(1, 2, 3, padding=2, padding_mode="reflect"),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AvgPool2d(2, 2, 1, ceil_mode=True, count_include_pad=False),
        nn.AvgPool2d(3, 2, 1, divisor_override=4),
    ],
    ids=str,
)
def test_reflect_padding_and_count_include_pad(layer: nn.Module) -> None:
    layer, x = layer.double(), draw(2, 1, 5, 5)
    lower, upper = exact_affine(layer, x, 0.2)
    for method, bounds in answers(layer, bl.Linf(x, 0.2)).items():
        assert_holds(bounds, torch.stack([lower, upper]), method)
        if method != "ibp":  # for intervals the copies that reflection makes move apart
            assert_exact(bounds, lower, upper, method)


# -- elementwise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [4, 3, 6])
def test_the_chord_of_a_power_reaches_its_end(exponent: int) -> None:
    """x**4 on [1, 2] reaches 16; 11.8 has been given as its upper bound."""
    x = torch.full((1, 1), 1.5, dtype=torch.float64)
    for method, bounds in answers(lambda x: x**exponent, bl.Linf(x, 0.5)).items():
        assert_exact(bounds, torch.ones_like(x), torch.full_like(x, 2.0**exponent), method)


@pytest.mark.parametrize("slope", [0.01, 0.3, 1.5, -0.4])
def test_leaky_relu_in_forward_mode(slope: float) -> None:
    """One variable, so that a grid finds the extremes."""
    f = lambda x: (
        F.leaky_relu(x @ torch.tensor([[1.0, -2.0, 0.5]]).to(x), slope)
        @ torch.tensor([[1.0], [1.0], [-3.0]]).to(x)
    )
    x = torch.tensor([[-1.0], [0.2], [3.0]], dtype=torch.float64)
    values = torch.stack([f(x + step) for step in torch.linspace(-1, 1, 401, dtype=torch.float64)])
    for method, bounds in answers(f, bl.Linf(x, 1.0)).items():
        assert_holds(bounds, values, method)


def test_tanh_gelu_is_not_the_exact_one() -> None:
    x = torch.linspace(-4, 4, 81, dtype=torch.float64)[:, None]
    exact, approximate = F.gelu, lambda x: F.gelu(x, approximate="tanh")
    assert (exact(x) - approximate(x)).abs().max() > 1e-4
    for f in (exact, approximate):
        for method, point in answers(f, bl.Linf(x, 0.0)).items():
            assert_exact(point, f(x), f(x), method)
        for method, narrow in answers(f, bl.Linf(x, 1e-5)).items():
            assert_holds(narrow, torch.stack([f(x - 1e-5), f(x), f(x + 1e-5)]), method)
            assert (narrow.width < 1e-4).all(), method


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_softmax_of_tiny_probabilities(dtype: torch.dtype) -> None:
    """softmax_i is largest where x_i is largest and all others least: its exact range, down to
    1e-20."""
    x = torch.tensor([[0.0, -10.0, -20.0, -45.0], [30.0, 0.0, -5.0, 1.0]], dtype=dtype)
    sign = 2 * torch.eye(4, dtype=torch.float64) - 1
    highest = torch.stack([(x.double() + row).softmax(1)[:, i] for i, row in enumerate(sign)], 1)
    lowest = torch.stack([(x.double() - row).softmax(1)[:, i] for i, row in enumerate(sign)], 1)
    room = 1e-4 if dtype == torch.float32 else 1e-9
    for method, bounds in answers(lambda x: x.softmax(1), bl.Linf(x, 1.0)).items():
        assert (bounds.upper.double() >= highest * (1 - room)).all(), method
        assert (bounds.lower.double() <= lowest * (1 + room)).all(), method
        assert (bounds.lower >= 0).all(), method
        assert (bounds.upper <= 1 + room).all(), method


# -- two inputs, and operators from outside --------------------------------------------------------


def test_two_perturbed_inputs_multiplied() -> None:
    """A product is largest and least at corners of its box."""
    x, y, radius = draw(5, 3), draw(5, 3, seed=1), 0.9
    corners = torch.stack([(x + i * radius) * (y + j * radius) for i in (-1, 1) for j in (-1, 1)])
    found = answers(torch.mul, bl.Linf(x, radius), bl.Linf(y, radius))
    assert_exact(found["ibp"], corners.amin(0), corners.amax(0), "ibp")
    for method, bounds in found.items():
        assert_holds(bounds, corners, method)
    for method, bounds in answers(
        lambda x, y: (x * y).sum(1), bl.Linf(x, radius), bl.Linf(y, radius)
    ).items():
        assert_holds(bounds, torch.stack([corners.amax(0).sum(1), corners.amin(0).sum(1)]), method)


@torch.library.custom_op("boundlab_tests::grow", mutates_args=())
def grow(x: Tensor) -> Tensor:
    return torch.exp(x)


@torch.library.custom_op("boundlab_tests::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    return torch.tanh(x) * factor


grow.register_fake(lambda x: torch.empty_like(x))


scaled.register_fake(lambda x, factor: torch.empty_like(x))


@pytest.fixture
def outside() -> Iterator[None]:
    """Two operators that boundlab does not know, registered as a user does."""
    op, composed = torch.ops.boundlab_tests.grow.default, torch.ops.boundlab_tests.scaled.default
    bl.elementwise(op, curve=bl.Curve(("convex",), derivative=torch.exp))
    bl.composition(composed)(lambda x, factor: torch.tanh(x) * factor)
    yield
    unregister(op)
    unregister(composed)


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    "f",
    [torch.ops.boundlab_tests.grow, lambda x: torch.ops.boundlab_tests.scaled(x, -2.0)],
    ids=["elementwise", "composition"],
)
def test_upper_lines_of_an_operator_from_outside_are_chords(f: Callable[[Tensor], Tensor]) -> None:
    """The upper line of a convex function is its chord, not its tangent: lower and upper
    coefficients differ."""
    x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    steps = torch.linspace(-1, 1, 201, dtype=torch.float64)
    values = torch.stack([f(x + step) for step in steps])
    for method, bounds in answers(f, bl.Linf(x, 1.0)).items():
        assert_exact(bounds, values.amin(0), values.amax(0), method)
    net = bl.capture(f, x)
    lines = net.linear_bounds(bl.Linf(x, 1.0))
    for step, value in zip(steps, values, strict=True):
        line = lines.evaluate({net.graph.inputs[0]: x + step})
        assert_inside(value, line.lower, line.upper, "the lines")


@pytest.mark.usefixtures("outside")
def test_lines_of_an_operator_from_outside() -> None:
    x = torch.tensor([[0.0]], dtype=torch.float64)
    lines = bl.capture(torch.ops.boundlab_tests.grow, x).linear_bounds(bl.Linf(x, 1.0))
    (name,) = lines.upper_A
    assert lines.lower_A[name].item() == pytest.approx(1.0)  # the tangent at 0
    assert lines.upper_A[name].item() == pytest.approx(math.sinh(1.0))  # the chord over [-1, 1]
    assert lines.upper_b.item() == pytest.approx(math.cosh(1.0))


# -- found by attacking boundlab -------------------------------------------------------------------


def test_large_constants_do_not_swallow_slopes() -> None:
    """In single precision (0.01 + 1e6) - 1e6 is 0: a slope must not be found by taking the constant
    off again."""
    x = torch.full((1, 3), 5e3)
    for method, bounds in answers(lambda x: 0.01 * x + 1e6, bl.Linf(x, 5e3)).items():
        assert (bounds.lower <= 1e6 + 1).all(), method
        assert (bounds.upper >= 1e6 + 99).all(), method


def test_layer_norm_of_large_values_in_single_precision() -> None:
    """[0, large] + 1e-5 must stay positive, or the reciprocal square root has no domain."""
    x = 100 * draw(4, 6).float()
    f = lambda x: F.layer_norm(x, (6,))
    values = torch.stack(
        [f(x + 100 * draw(*x.shape, seed=s).float().clamp(-1, 1)) for s in range(20)]
    )
    for method, bounds in answers(f, bl.Linf(x, 100.0)).items():
        assert_holds(bounds, values, method)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * (x > 0),
        lambda x: (x > 0) * 3.0,
        lambda x: x + (x > 0),
        lambda x: (x > 0).sum(1) * 0.5 + x[:, 0],
        lambda x: x.to(torch.int64) * 2.5,
        lambda x: (x > 0).to(x.dtype).mean(1),
        lambda x: torch.where((x > 0) & (x < 1), x, -x),
    ],
    ids=["times", "scaled", "added", "counted", "integer", "mean", "and"],
)
def test_truth_values_in_arithmetic(f: Callable[[Tensor], Tensor]) -> None:
    """The coefficient of a value that is not a floating-point number must not be dropped on the way
    back."""
    x = draw(6, 3)
    values = torch.stack(
        [f(x - 1), f(x + 1), *[f(x + draw(*x.shape, seed=s).clamp(-1, 1)) for s in range(100)]]
    )
    for method, bounds in answers(f, bl.Linf(x, 1.0)).items():
        assert_holds(bounds, values, method)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.where(x.round().bool(), x, 5.0),
        lambda x: torch.logical_not(x.round()).to(x.dtype),
        lambda x: torch.any(x.round(), 1).to(x.dtype),
        lambda x: torch.bitwise_and(x.to(torch.int64), 1).to(x.dtype),
    ],
    ids=["bool", "not", "any", "bitwise"],
)
def test_truth_of_numbers_is_not_monotone(f: Callable[[Tensor], Tensor]) -> None:
    """-1, 0, 1 are true, false, true: bound it or refuse it."""
    x, grid = torch.zeros(1, 2, dtype=torch.float64), torch.linspace(-2, 2, 21, dtype=torch.float64)
    values = torch.stack([f(torch.stack([a, b])[None]) for a in grid for b in grid])
    try:
        found = answers(f, bl.Linf(x, 2.0))
    except bl.UnsupportedOperator:
        return
    for method, bounds in found.items():
        assert_holds(bounds, values, method)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.einsum("bi,bj->bij", x, x.flip(1)),
        lambda x: torch.einsum("bi,bj->bji", x, x),
    ],
    ids=["ij", "ji"],
)
def test_outer_products_do_not_sum_over_samples(f: Callable[[Tensor], Tensor]) -> None:
    """As many samples as elements, so that a sum over the wrong dimension has the right shape."""
    x = draw(3, 3)
    values = torch.stack([f(x + 0.5 * draw(3, 3, seed=s).clamp(-1, 1)) for s in range(60)])
    for method, bounds in answers(f, bl.Linf(x, 0.5)).items():
        assert_holds(bounds, values, method)


@pytest.mark.parametrize("y", [49.0, 3.0, 0.1, 41.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_floor_of_a_quotient_is_that_of_torch(y: float, dtype: torch.dtype) -> None:
    """x * (1 / y) can fall short of x / y by a rounding error, which floor turns into 1."""
    x = y * torch.arange(-60, 61, dtype=dtype)[:, None]
    for mode in ("floor", "trunc"):
        f = lambda x, mode=mode: torch.div(x, y, rounding_mode=mode)
        for method, bounds in answers(f, bl.Linf(x, 0.0)).items():
            assert_holds(bounds, f(x)[None], method)
            assert torch.equal(bounds.lower, bounds.upper)


@pytest.mark.parametrize(
    ("f", "width"), [(F.softsign, 0.35), (F.tanhshrink, 0.7)], ids=["softsign", "tanhshrink"]
)
def test_functions_that_torch_writes_out_are_one_node(
    f: Callable[[Tensor], Tensor], width: float
) -> None:
    """Interval arithmetic is exact for a rising function, and the lines are as good as a single
    curve allows."""
    x = torch.linspace(-3, 3, 40)[:, None]
    region = bl.Linf(x, 0.5)
    net = bl.capture(f, x)
    assert len(net.graph.nodes) == 2
    bounds = net.bounds(region, method="ibp")
    torch.testing.assert_close(bounds.lower, f(x - 0.5))
    torch.testing.assert_close(bounds.upper, f(x + 0.5))
    for method, found in answers(f, region).items():
        assert_holds(found, torch.stack([f(x + d) for d in torch.linspace(-0.5, 0.5, 21)]), method)
        assert float(found.width.mean()) < width
    # looks alike, is not the same
    near = bl.capture(lambda x: x * torch.reciprocal(x.abs() + 2) + (x - torch.tanh(2 * x)), x)
    assert len(near.graph.nodes) > 6


def test_the_index_of_the_largest_covers_all_that_may_win() -> None:
    x = torch.tensor([[0.0, 1.0, 1.2, -1.0], [3.0, 0.0, 0.1, 0.0]])
    bounds = bl.capture(lambda x: tuple(x.max(1)), x).bounds(bl.Linf(x, 0.15), method="crown")
    assert bounds[1].lower.tolist() == [1, 0] and bounds[1].upper.tolist() == [2, 0]
    smallest = bl.capture(lambda x: x.argmin(1, keepdim=True), x).bounds(
        bl.Linf(x, 0.15), method="ibp"
    )
    assert smallest.lower.tolist() == [[3], [1]] and smallest.upper.tolist() == [[3], [3]]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_widths_beyond_all_numbers(method: str, slope: float) -> None:
    """u - l overflowed to infinity, and the chord of the ReLU became the line 0: [0, 0] instead of
    [0, 3e8]."""
    x = torch.zeros(1, 2)
    net = bl.capture(
        lambda x: F.leaky_relu(x * 3e38, slope) * 1e-30 if slope else F.relu(x * 3e38) * 1e-30, x
    )
    bounds = net.bounds(bl.Linf(x, 1.0), method=method, alpha=steps(method))
    assert float(bounds.upper.min()) >= 3e8 * (1 - 1e-5) and float(
        bounds.lower.max()
    ) <= -slope * 3e8 * (1 - 1e-5)


def test_gradients_pass_masked_attention() -> None:
    """Scores of -inf made gradients NaN, of interval and of backward bounds."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 3).double()

    def model(x: Tensor, mask: Tensor) -> Tensor:
        scores = (layer(x) @ x.transpose(1, 2)).masked_fill(~mask[:, None], -torch.inf)
        return (scores.softmax(-1) @ x).sum(1)

    x, mask = (
        torch.rand(2, 4, 3, dtype=torch.float64),
        torch.tensor([[True, True, True, True], [True, True, False, False]]),
    )
    net = bl.capture(model, x, mask)
    for method in ("ibp", "crown-ibp", "crown", "forward"):
        layer.zero_grad()
        bounds = net.bounds(bl.Linf(x, 0.05), mask, method=method)
        bounds.width.sum().backward()
        assert layer.weight.grad is not None and torch.isfinite(layer.weight.grad).all(), method


@pytest.mark.parametrize("level", [0.0, -1e5, -1e12, -3e38])
def test_masked_scores_have_no_weight_however_low_the_others_are(level: float) -> None:
    x = torch.tensor([[level, level, level]])
    mask = torch.tensor([[True, True, False]])
    net = bl.capture(lambda x, mask: x.masked_fill(~mask, -torch.inf).softmax(-1), x, mask)
    for method in ("ibp", "crown"):
        found = net.bounds(bl.Linf(x, 0.0), mask, method=method)
        expected = torch.tensor([[0.5, 0.5, 0.0]])
        assert (found.lower <= expected + 1e-5).all() and (found.upper >= expected - 1e-5).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["softmax", "logsumexp"])
def test_scores_that_may_be_masked_or_not(name: str, dtype: torch.dtype) -> None:
    """Planes left out scores that are -inf for some inputs only, as if they were so for all."""

    def model(x: Tensor) -> Tensor:
        scores = torch.cat([torch.where(x > 0, x, -torch.inf), x[:, :1]], 1)
        return scores.softmax(1) if name == "softmax" else scores.logsumexp(1, keepdim=True)

    torch.manual_seed(0)
    for eps in (0.1, 0.3, 1.0):
        x = torch.randn(4, 4, dtype=dtype)
        net, region = bl.capture(model, x), bl.Linf(x, eps)
        outputs = torch.stack([model(region.sample()) for _ in range(500)])
        for method in ("ibp", "crown-ibp", "crown", "forward", "forward+backward", "alpha-crown"):
            found = net.bounds(region, method=method)
            assert (found.lower <= outputs + 1e-6).all() and (
                found.upper >= outputs - 1e-6
            ).all(), method


@pytest.mark.parametrize(
    ("level", "dtype"),
    [(-1e9, torch.float32), (-1e4, torch.float32), (1e7, torch.float32), (-1e30, torch.float64)],
)
def test_weights_of_large_scores(level: float, dtype: torch.dtype) -> None:
    """The log of the sum of the others was lost in rounding."""
    x = torch.zeros(1, 6, dtype=dtype)
    net = bl.capture(lambda x: (x * 1e-3 + level).softmax(1), x)
    for method in ("ibp", "crown"):
        found = net.bounds(bl.Linf(x, 0.0), method=method)
        torch.testing.assert_close(found.lower, torch.full_like(x, 1 / 6))
        torch.testing.assert_close(found.upper, torch.full_like(x, 1 / 6))


def test_truth_values_as_factors_and_weights_of_prelu() -> None:
    x, kept = torch.randn(2, 3), torch.tensor([True, False, True])
    for method in ("ibp", "crown", "forward", "forward+backward"):
        found = bl.capture(lambda x: torch.relu(x) * kept, x).bounds(bl.Linf(x, 0.1), method=method)
        assert torch.equal(found.lower[:, 1], torch.zeros(2)) and (found.width[:, 0] >= 0).all()
    model = nn.Sequential(nn.Linear(3, 3), nn.PReLU())
    for method in ("ibp", "crown"):
        with pytest.raises(bl.UnsupportedOperator, match="weight of prelu"):
            bl.capture(model, x).bounds(x, perturb={"1.weight": bl.Linf(eps=0.1)}, method=method)


def test_softmax_where_every_score_may_be_masked() -> None:
    x = torch.tensor([[0.1, 1.0, 2.0]], dtype=torch.float64)
    region = bl.Linf(x, 0.3)
    net = bl.capture(lambda x: torch.where(x > 0, x, -torch.inf).softmax(1), x)
    worst = torch.tensor([[0.01, 1.3, 1.7]], dtype=torch.float64)  # crown excluded it
    outputs = torch.cat([net(worst), *[net(region.sample()) for _ in range(500)]])
    for method in ("ibp", "crown-ibp", "crown", "forward", "forward+backward", "alpha-crown"):
        found = net.bounds(region, method=method)
        assert (found.lower <= outputs + 1e-9).all() and (found.upper >= outputs - 1e-9).all(), (
            method
        )


BEHIND: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax, all masked": lambda x: torch.where(x < 9, -torch.inf, x).softmax(1),
    "softmax, perhaps all masked": lambda x: torch.where(x > 0.2, x, -torch.inf).softmax(1),
    "clamp": lambda x: (x * torch.inf).clamp(-1, 1),
    "sigmoid": lambda x: torch.sigmoid(torch.exp(1e3 * x) - torch.exp(1e3 * x)),
    "sinc": lambda x: torch.sinc((x + 1) * 1e300 * 1e300),
    "a layer behind": lambda x: torch.where(x < 9, -torch.inf, x).softmax(1).cumsum(1) + 2,
}


@pytest.mark.parametrize("name", BEHIND)
def test_nan_to_num_behind_bounded_operators(name: str) -> None:
    """That bounds are numbers was taken for a proof that the value is one."""
    model = lambda x: torch.nan_to_num(BEHIND[name](x), 5.0)
    x = torch.tensor([[0.0, 0.1, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    net, region = bl.capture(model, x), bl.Linf(x, 0.5)
    points = [x, x - 0.5, x + 0.5, *[region.sample() for _ in range(20)]]
    values = torch.stack([model(point) for point in points])
    assert (values == 5).any()
    for method in METHODS:
        found = net.bounds(region, method=method, alpha=steps(method))
        # bounds that are NaN say nothing
        assert not (values < found.lower - 1e-9).any(), method
        assert not (values > found.upper + 1e-9).any(), method


def test_nan_to_num_of_inputs_keeps_its_slope() -> None:
    layer = nn.Linear(3, 4).double()
    x = draw(2, 3)
    model = lambda x: torch.relu(layer(torch.nan_to_num(2 * x, 7.0)))
    plain = bl.capture(lambda x: torch.relu(layer(2 * x)), x).bounds(bl.Linf(x, 0.1))
    found = bl.capture(model, x).bounds(bl.Linf(x, 0.1))
    torch.testing.assert_close(found.lower, plain.lower)
    torch.testing.assert_close(found.upper, plain.upper)


def _scattered(y: Tensor, index: Tensor) -> Tensor:
    return torch.zeros_like(y).scatter(1, index, y)


def _put(y: Tensor, index: Tensor) -> Tensor:
    rows = torch.arange(len(y))[:, None].expand_as(index)
    return torch.index_put(torch.zeros_like(y), (rows, index), y)


def _copied(y: Tensor, index: Tensor) -> Tensor:
    return torch.index_copy(torch.zeros_like(y), 1, index[0], y)


@pytest.mark.parametrize("write", [_scattered, _put, _copied])
def test_elements_written_to_one_place(write: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Autograd's transpose gave the place of several elements to all of them: crown's lower bound
    was that of their sum."""
    x = torch.rand(2, 3) + 0.05
    for index, repeats in (([0, 0, 2], True), ([2, 0, 1], False)):
        where = torch.tensor([index, index])
        net = bl.capture(lambda x, where=where: write(torch.relu(x), where), x, batched=False)
        for method in ("ibp", "crown", "forward", "alpha-crown"):
            if repeats:
                with pytest.raises(bl.UnsupportedOperator, match="several perturbed elements"):
                    net.bounds(bl.Linf(x, 0.01), method=method)
            else:
                bounds = net.bounds(bl.Linf(x, 0.01), method=method)
                torch.testing.assert_close(bounds.lower, write(x - 0.01, where))
                torch.testing.assert_close(bounds.upper, write(x + 0.01, where))


def test_constants_written_to_one_place_and_elements_that_add_up() -> None:
    """Neither leaves open which perturbed element stays."""
    x = torch.rand(2, 3) + 0.05
    index = torch.tensor([[0, 0, 2], [1, 1, 1]])
    rows = torch.arange(2)[:, None].expand_as(index)

    def constant(x: Tensor) -> Tensor:
        return torch.relu(x).scatter(1, index, -torch.inf)

    def added(x: Tensor) -> Tensor:
        return torch.index_put(torch.relu(x), (rows, index), x, accumulate=True)

    for model in (constant, added):
        net = bl.capture(model, x, batched=False)
        bounds = net.bounds(bl.Linf(x, 0.01))
        torch.testing.assert_close(bounds.lower, model(x - 0.01))
        torch.testing.assert_close(bounds.upper, model(x + 0.01))
