"""Regions and norms: wrong answers of the past, one test a cause."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundlab as bl
from tests.helpers.exact import answers, assert_exact, assert_holds, exact_affine
from tests.helpers.models import perceptron
from tests.helpers.tensors import draw

# -- norms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["L2", "L1"])
def test_ball_that_feeds_a_nonlinearity(norm: str) -> None:
    """sum of squares over an L2 ball is largest at (|c| + r)^2; of exponentials over an L1 ball, at
    one of its vertices."""
    x, radius = draw(4, 3), 0.7
    if norm == "L2":
        region, f = bl.L2(x, radius), lambda x: (x**2).sum(1)
        length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        points = [x * (1 + radius / length), x * (1 - radius / length), x]
    else:
        region, f = bl.L1(x, radius), lambda x: torch.exp(x).sum(1)
        points = [
            x + sign * radius * axis for axis in torch.eye(3, dtype=x.dtype) for sign in (1, -1)
        ]
    for method, bounds in answers(f, region).items():
        assert_holds(bounds, torch.stack([f(point) for point in points]), method)


@pytest.mark.parametrize(
    "f",
    [torch.tanh, torch.relu, torch.exp, torch.sin, lambda x: x.softmax(1), lambda x: x * x.flip(1)],
    ids=range(6),
)
@pytest.mark.parametrize("norm", [bl.L2, bl.L1])
def test_intervals_from_a_ball_whose_first_operator_is_not_linear(
    f: Callable[[Tensor], Tensor], norm: type
) -> None:
    """Each element alone reaches the whole radius: the range over an axis of the ball must be
    inside."""
    x, radius = draw(4, 3), 0.8
    bounds = bl.capture(f, x).bounds(norm(x, radius), method="ibp")
    steps = torch.linspace(-radius, radius, 51, dtype=x.dtype)
    assert_holds(
        bounds,
        torch.stack([f(x + step * axis) for axis in torch.eye(3, dtype=x.dtype) for step in steps]),
        "ibp",
    )


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_ball_through_batch_norm(norm: str) -> None:
    model = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 4)).double().eval()
    model[0].running_mean.copy_(draw(5, seed=1))
    model[0].running_var.copy_(draw(5, seed=2).abs() + 0.1)
    model[0].weight.data.copy_(draw(5, seed=3))
    x = draw(3, 5)
    exact = exact_affine(model, x, 0.6, norm)
    for method, bounds in answers(model, {"L1": bl.L1, "L2": bl.L2}[norm](x, 0.6)).items():
        assert_exact(bounds, *exact, method)


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_partly_perturbed_input(norm: str) -> None:
    """Elements with eps 0 do not move: exact for an affine model, and outputs that read only them
    are points."""
    x, eps = draw(3, 4), torch.tensor([0.5, 0.0, 0.2, 0.0], dtype=torch.float64).expand(3, 4)
    region = {"Linf": bl.Linf, "L2": bl.L2, "L1": bl.L1}[norm](x, eps)
    layer = nn.Linear(4, 5).double()
    exact = exact_affine(layer, x, eps, norm)
    for method, bounds in answers(layer, region).items():
        assert_exact(bounds, *exact, method)
    f = lambda x: torch.tanh(x[:, 1::2]).prod(1)
    for method, fixed in answers(f, region).items():
        assert_exact(fixed, f(x), f(x), method)


@pytest.mark.parametrize("method", ["ibp", "crown", "crown-ibp", "forward"])
@pytest.mark.parametrize("ball", [bl.L1, bl.L2])
def test_a_radius_is_taken_in_double_precision(ball: Callable[..., bl.Region], method: str) -> None:
    """It was rounded to single precision first: 2.4e-8 too tight."""
    layer = nn.Linear(3, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3))
        layer.bias.zero_()
    x = torch.zeros(2, 3, dtype=torch.float64)
    assert (
        float(bl.capture(layer, x).bounds(ball(x, 0.9), method=method).upper.min().detach())
        >= 0.9 - 1e-15
    )


def test_gradients_by_the_upper_end_of_a_box() -> None:
    """alpha-crown looked at the lower end only to tell whether anything is differentiated by."""
    torch.manual_seed(1)
    first, second = torch.randn(4, 5, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    low, up = (
        -torch.rand(2, 4, dtype=torch.float64),
        torch.rand(2, 4, dtype=torch.float64).requires_grad_(),
    )
    net = bl.capture(lambda x: F.relu(F.relu(x) @ first) @ second - x[:, :1], low)
    ask = lambda upper: net.bounds(
        bl.Box(low, upper), method="alpha-crown", alpha=bl.Alpha(iterations=60, inner=20)
    ).lower.sum()
    (gradient,) = torch.autograd.grad(ask(up), up)
    direction = torch.randn_like(low)
    with torch.no_grad():
        numeric = (ask(up + 1e-6 * direction) - ask(up - 1e-6 * direction)) / 2e-6
    assert float((gradient * direction).sum()) == pytest.approx(float(numeric), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("p", [1.02, 1.05, 1.1, 20.0])
def test_norms_of_large_order_do_not_vanish(p: float) -> None:
    """Sums of |c|^q with large q underflowed to 0, and the bound shrank to a point."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
    x = torch.rand(3, 5) * 1e-2
    net = bl.capture(model, x)
    for entry, perturb in ((bl.Lp(x, p, 1e-3), {}), (x, {"0.weight": bl.Lp(p=p, eps=1e-3)})):
        for method in ("ibp", "crown"):
            found = net.bounds(entry, perturb=perturb, method=method)
            step = torch.zeros_like(x if not perturb else model[0].weight)
            step.view(-1)[0] = 1e-3
            moved = (
                net(x + step)
                if not perturb
                else model[1](nn.functional.linear(x, model[0].weight + step, model[0].bias))
            )
            assert (found.lower <= moved + 1e-7).all() and (found.upper >= moved - 1e-7).all()
            assert float(found.width.detach().min()) > 0


def test_balls_on_both_operands_of_einsum_and_on_broadcast_weights() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.first, self.second = (
                nn.Parameter(torch.rand(shape)) for shape in ((1, 1, 3), (1, 3, 4), (4, 4))
            )

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("bti,ij->btj", torch.relu(x * self.scale) @ self.first, self.second)

    torch.manual_seed(0)
    model = Scaled().double()
    x = torch.rand(2, 2, 3, dtype=torch.float64)
    net = bl.capture(model, x)
    for kind in (bl.L2, bl.Linf, bl.L1):
        perturb = {name: kind(eps=0.05) for name in ("scale", "first", "second")}
        for method in ("ibp", "crown", "forward+backward", "alpha-crown"):
            found = net.bounds(bl.L2(x, 0.1), perturb=perturb, method=method)
            for seed in range(20):
                generator = torch.Generator().manual_seed(seed)
                state = {
                    name: region.at(net.parameters()[name].detach()).sample(
                        generator, batched=False
                    )
                    for name, region in perturb.items()
                }
                value = torch.func.functional_call(model, state, (bl.L2(x, 0.1).sample(generator),))
                assert (found.lower <= value + 1e-9).all() and (found.upper >= value - 1e-9).all()


def test_the_reach_of_large_and_of_no_perturbations_is_finite() -> None:
    model = nn.Linear(4, 2)
    x = torch.full((2, 4), 1e5)
    net = bl.capture(model, x)
    for method in ("ibp", "crown"):
        for eps in (0.0, 0.1, torch.tensor(0.1, dtype=torch.float64)):
            for kind in (bl.L1, bl.L2):
                found = net.bounds(x, perturb={"weight": kind(eps=eps)}, method=method)
                assert torch.isfinite(found.width).all() and found.lower.dtype == torch.float32
    single = bl.capture(nn.Linear(3, 2), torch.rand(3), batched=False)
    found = single.bounds(
        torch.rand(3), perturb={"weight": bl.L2(eps=torch.full((1, 1), 0.1))}, method="ibp"
    )
    assert found.lower.shape == (2,)


def test_a_radius_of_one_dimension_is_one_per_sample() -> None:
    x, eps = torch.zeros(3, 3), torch.tensor([0.1, 0.2, 0.3])
    assert torch.equal(bl.Linf(x, eps).hull().upper, eps[:, None].expand(3, 3))
    assert torch.equal(bl.Linf(x, eps[None]).hull().upper, eps.expand(3, 3))
    assert torch.equal(bl.Linf(x, 1.0, upper=eps).hull().upper, eps[:, None].expand(3, 3))
    for kind in (bl.Linf, bl.L2, bl.L1):
        with pytest.raises(
            bl.ArgumentError,
            match=(
                r"one per sample, a tensor of shape \(2,\).*\(1, "
                r"3\)"
            ),
        ):
            kind(torch.zeros(2, 3), eps)


class Positions(nn.Module):
    """Truncation swallows what a word says of another position."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1).to(torch.int64).to(x.dtype) ** 2


def test_words_behind_a_cast() -> None:
    torch.manual_seed(0)
    x, others = torch.rand(1, 3, 2) * 4, torch.rand(1, 3, 2, 2) * 4
    region = bl.Words(x, others, budget=3)
    found = bl.capture(Positions(), x).bounds(region, method="ibp")
    for seed in range(200):
        value = Positions()(region.sample(torch.Generator().manual_seed(seed)))
        assert (found.lower - 1e-4 <= value).all() and (value <= found.upper + 1e-4).all()


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("method", ["crown", "crown-ibp", "ibp"])
def test_a_ball_that_is_cut_is_never_looser(p: float, method: str) -> None:
    torch.manual_seed(3)
    model, x, labels = perceptron(6, 20, 20, 4), torch.rand(5, 6), torch.randint(0, 4, (5,))
    net = bl.capture(model, x)
    cut = bl.Lp(x, p, 0.5, lower=0.0, upper=1.0)
    hull = cut.hull()
    margins = net.margins(cut, labels, method=method)
    for larger in (bl.Lp(x, p, 0.5), bl.Box(hull.lower, hull.upper)):
        assert (margins >= net.margins(larger, labels, method=method) - 1e-5).all()


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_the_minimum_over_a_ball_that_is_cut_is_exact(p: float) -> None:
    """Against the multiplier found by bisection."""
    torch.manual_seed(1)
    x, c = torch.rand(2, 9, dtype=torch.float64), torch.randn(40, 2, 9, dtype=torch.float64)
    for eps in (0.1, 0.4, 0.8, 2.0):
        found = bl.Lp(x, p, eps, lower=0.0, upper=1.0).minimum(c)
        least = _by_bisection(c, x, p, eps)
        assert (found <= least + 1e-9).all()
        torch.testing.assert_close(found, least, rtol=1e-3, atol=1e-3)


def _by_bisection(c: Tensor, x: Tensor, p: float, eps: float) -> Tensor:
    low, up = -torch.clamp(x, max=eps), torch.clamp(1 - x, max=eps)
    # a linear programme: the best of all orders in which the elements use up the radius is the
    # greedy one
    if p == 1.0:
        gains, order = c.abs().sort(-1, descending=True)
        most = torch.where(c > 0, -low, up).gather(-1, order)
        used = torch.minimum(most, (eps - (most.cumsum(-1) - most)).clamp(min=0))
        return (c * x).sum(-1) - (gains * used).sum(-1)
    small, large = (
        torch.full((*c.shape[:2], 1), 1e-12, dtype=c.dtype),
        torch.full((*c.shape[:2], 1), 1e12, dtype=c.dtype),
    )
    step = torch.zeros_like(c)
    for _ in range(200):
        middle = (small * large).sqrt()
        step = -torch.sign(c) * eps * (c.abs() * eps / (p * middle)) ** (1 / (p - 1))
        step = torch.minimum(torch.maximum(step, low), up)
        outside = ((step / eps).abs() ** p).sum(-1, keepdim=True) > 1
        small, large = torch.where(outside, middle, small), torch.where(outside, large, middle)
    return (c * (x + step)).sum(-1)
