"""Steps with gradients written out give what autograd gives; folded graphs give what whole ones
do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from boundlab.kernels import fused
from boundlab.kernels import trained_linear as layers
from boundlab.kernels.fused import ball, ends, least, moments, rectified, rectified_ball, sloped
from boundlab.kernels.reductions import common
from boundlab.kernels.trained_linear import gathered, interval_linear, rows_linear
from boundlab.methods import analysis
from boundlab.methods.folding import fold
from boundlab.methods.plan import Plan
from boundlab.relaxations.interval import Interval, MidRad
from boundlab.rules.registry import CUTS
from tests.helpers.tensors import draw


def test_balls_and_their_ends() -> None:
    lower = draw(3, 4).requires_grad_()
    upper = (lower.detach() + draw(3, 4, seed=1).abs()).requires_grad_()
    assert torch.autograd.gradcheck(ball, (lower, upper)) and torch.autograd.gradcheck(
        ends, (lower, upper)
    )
    again = ends(*ball(lower, upper))
    torch.testing.assert_close(again[0], lower)
    torch.testing.assert_close(again[1], upper)


def relu_by_hand(rows: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Case by case, with autograd's gradients."""
    unstable = (lower < 0) & (upper > 0)
    slope = torch.where(
        unstable, upper / torch.where(unstable, upper - lower, 1.0), (lower >= 0).to(rows.dtype)
    )
    line = torch.where(unstable, (upper > -lower).to(rows.dtype), slope.detach())
    positive, negative = rows.clamp(min=0), rows.clamp(max=0)
    return positive * line + negative * slope, negative * torch.where(unstable, -slope * lower, 0.0)


@pytest.mark.parametrize("block", [1, 12, 1 << 17])
@pytest.mark.parametrize("ball", [False, True])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 999), st.integers(1, 3))
def test_rows_through_a_relu(
    monkeypatch: pytest.MonkeyPatch, block: int, ball: bool, seed: int, count: int
) -> None:
    monkeypatch.setitem(fused.BLOCK, "cpu", block)
    middle, radius = draw(2, 5, seed=seed), draw(2, 5, seed=seed + 1).abs()
    inputs = [
        draw(count, 2, 5, seed=seed + 2),
        *((middle, radius) if ball else (middle - radius, middle + radius)),
    ]
    found, expected = ([tensor.clone().requires_grad_() for tensor in inputs] for _ in range(2))
    ours = rectified(*found, ball=ball)
    theirs = (
        relu_by_hand(expected[0], expected[1] - expected[2], expected[1] + expected[2])
        if ball
        else relu_by_hand(*expected)
    )
    torch.testing.assert_close(ours, theirs)
    weights = [draw(count, 2, 5, seed=seed + k) for k in (3, 4)]
    for outputs in (ours, theirs):
        sum((w * out).sum() for w, out in zip(weights, outputs, strict=True)).backward()  # type: ignore[union-attr]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("block", [1, 4, 1 << 17])
@pytest.mark.parametrize("summed", [False, True])
def test_blocks_change_nothing(block: int, summed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = draw(5, 2, 3)
    inputs = [draw(2, 5, 2, 3, seed=1), lower, lower + draw(5, 2, 3, seed=2).abs()]
    balls = draw(5, 2, 3, seed=3), draw(5, 2, 3, seed=4).abs()
    within = lambda rows, *ball: rectified(rows, *ball, summed, ball=True)
    assert torch.autograd.gradcheck(
        rectified_ball, tuple(tensor.requires_grad_() for tensor in balls)
    )
    whole = [*rectified(*inputs, summed), *within(inputs[0], *balls), *rectified_ball(*balls)]
    monkeypatch.setitem(fused.BLOCK, "cpu", block)
    parts = [*rectified(*inputs, summed), *within(inputs[0], *balls), *rectified_ball(*balls)]
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))
    assert torch.autograd.gradcheck(rectified_ball, balls)
    assert torch.autograd.gradcheck(
        lambda *tensors: rectified(*tensors, summed),
        tuple(tensor.requires_grad_() for tensor in inputs),
    )
    assert torch.autograd.gradcheck(within, (inputs[0], *balls))


@pytest.mark.parametrize("shared", [False, True])
def test_rows_through_a_relu_of_chosen_slope(shared: bool) -> None:
    rows, free = (
        draw(3, 2, 4).requires_grad_(),
        draw(1 if shared else 3, 2, 4, seed=1).sigmoid().requires_grad_(),
    )
    slope, bias = draw(2, 4, seed=2).sigmoid(), draw(2, 4, seed=3).abs()
    coefficients, constants = sloped(rows, free, slope, bias)
    torch.testing.assert_close(coefficients, rows.clamp(min=0) * free + rows.clamp(max=0) * slope)
    torch.testing.assert_close(constants, rows.clamp(max=0) * bias)
    assert torch.autograd.gradcheck(lambda r, f: sloped(r, f, slope, bias), (rows, free))


def test_zeros_among_the_rows_have_gradients() -> None:
    """Where a ReLU is active it is the identity, for a coefficient of 0 too."""
    rows, one = (
        torch.zeros(1, 1, 1, dtype=torch.float64, requires_grad=True),
        torch.ones(1, 1, dtype=torch.float64),
    )
    for coefficients, _ in (rectified(rows, one, 2 * one), sloped(rows, one[None], one, 0 * one)):
        assert torch.autograd.grad(coefficients.sum(), rows)[0].item() == 1


def test_gradients_in_half_precision() -> None:
    rows = draw(2, 3, 4).to(torch.bfloat16).requires_grad_()
    lower = draw(3, 4, seed=1).to(torch.bfloat16).requires_grad_()
    coefficients, constants = rectified(rows, lower, lower.detach() + 1)
    gradients = torch.autograd.grad(coefficients.sum() + constants.sum(), [rows, lower])
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("summed", [False, True])
def test_steps_can_be_differentiated_twice(summed: bool) -> None:
    lower = draw(2, 3)
    inputs = [draw(2, 2, 3, seed=1), lower, lower + draw(2, 3, seed=2).abs()]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    assert torch.autograd.gradgradcheck(lambda *tensors: rectified(*tensors, summed), tuple(inputs))
    rows, free = (
        draw(2, 2, 3, seed=3).requires_grad_(),
        draw(2, 2, 3, seed=4).sigmoid().requires_grad_(),
    )
    assert torch.autograd.gradgradcheck(
        lambda r, f: sloped(r, f, draw(2, 3, seed=5).sigmoid(), draw(2, 3, seed=6).abs()),
        (rows, free),
    )
    ball = draw(2, 3, seed=7).requires_grad_(), draw(2, 3, seed=8).abs().requires_grad_()
    assert torch.autograd.gradgradcheck(rectified_ball, ball)
    assert torch.autograd.gradgradcheck(
        lambda *tensors: rectified(*tensors, summed, ball=True), (inputs[0], *ball)
    )


def test_least_over_a_box() -> None:
    rows, centre, radius = (
        draw(3, 2, 4).requires_grad_(),
        draw(2, 4, seed=1),
        draw(2, 4, seed=2).abs(),
    )
    torch.testing.assert_close(
        least(rows, centre, radius), (rows * centre).sum(2) - (rows.abs() * radius).sum(2)
    )
    assert torch.autograd.gradcheck(lambda r: least(r, centre, radius), (rows,))


def test_points_and_zeros_through_a_relu() -> None:
    ends_ = torch.tensor([[-1.0, 0.0, 1.0, -0.0]], dtype=torch.float64).requires_grad_()
    rows = draw(2, 1, 4).requires_grad_()
    coefficients, constants = rectified(rows, ends_, ends_)
    assert torch.equal(constants, torch.zeros_like(constants))
    torch.testing.assert_close(coefficients[..., 0], torch.zeros(2, 1, dtype=torch.float64))
    torch.testing.assert_close(coefficients[..., 2], rows[..., 2])
    coefficients.sum().backward()
    assert rows.grad is not None and ends_.grad is not None and torch.isfinite(ends_.grad).all()


def in_blocks(monkeypatch: pytest.MonkeyPatch, block: int, thin: int) -> None:
    """Products with weights in blocks of so many numbers, for up to so many rows."""
    for name, value in {"BLOCK": block, "ROWS": 1, "WIDE": 1, "THIN": thin}.items():
        monkeypatch.setattr(layers, name, value)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("block", [1, 12, 1 << 20])
@pytest.mark.parametrize("thin", [0, 32])
def test_intervals_through_a_linear_layer(
    thin: int, block: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch, block, thin)
    centre, radius = draw(2, 3, 4), draw(2, 3, 4, seed=1).abs()
    weight, shift = draw(5, 4, seed=2), draw(5, seed=3) if bias else None
    inputs = [tensor.requires_grad_() for tensor in (centre, radius, weight) if tensor is not None]
    function = lambda c, r, w, *b: interval_linear(c, r, w, b[0] if b else None)
    inputs += [shift.requires_grad_()] if shift is not None else []
    assert torch.autograd.gradcheck(function, tuple(inputs))
    middle, reach = interval_linear(centre, radius, weight, shift)
    torch.testing.assert_close(middle, nn.functional.linear(centre, weight, shift))
    torch.testing.assert_close(reach, radius @ weight.abs().T)


class Layer:
    """Intervals and rows through one large weight, which a third reader squares."""

    def __init__(self, gather: bool) -> None:
        shapes = {"centre": (2, 30), "radius": (2, 30), "weight": (20, 30), "rows": (1, 2, 20)}
        self.leaves = {
            name: draw(*shape, seed=i).requires_grad_()
            for i, (name, shape) in enumerate(shapes.items())
        }
        centre, radius, weight, rows = self.leaves.values()
        weight = gathered(weight) if gather else weight
        middle, reach = interval_linear(centre, radius.abs(), weight, None)
        pulled = rows_linear(rows * middle, weight) if gather else (rows * middle) @ weight
        self.middle, self.loss = (
            middle,
            (middle * reach).sum() + pulled.square().sum() + (weight**2).sum(),
        )


@pytest.mark.parametrize("block", [1, 100, 1 << 20])
@pytest.mark.parametrize("thin", [0, 32])
def test_one_gradient_for_all_that_read_a_weight(
    thin: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch, block, thin)
    ours, plain = Layer(True), Layer(False)
    products: list[Any] = []
    product = layers._product
    monkeypatch.setattr(
        layers, "_product", lambda weight, terms: products.append(terms) or product(weight, terms)
    )
    ours.loss.backward()
    assert [len(terms) for terms in products] == [3]  # of the centre, of the radius and of the rows
    plain.loss.backward()
    for name, leaf in ours.leaves.items():
        torch.testing.assert_close(leaf.grad, plain.leaves[name].grad)


def test_slopes_climb_without_gradients_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        layers, "_product", lambda weight, terms: pytest.fail("nobody asked for this gradient")
    )
    net = bl.capture(
        nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2)),
        torch.rand(2, 3),
    )
    weights: list[Tensor] = []
    monkeypatch.setattr(
        analysis, "gathered", lambda weight: weights.append(gathered(weight)) or weights[-1]
    )
    net.bounds(bl.Linf(torch.rand(2, 3), 0.3), method="alpha-crown")
    assert weights and not any(weight.grad_fn.terms for weight in weights)


def test_terms_of_a_gradient_nobody_asked_for_are_not_kept() -> None:
    ours, plain = Layer(True), Layer(False)
    wanted = [ours.leaves["centre"]]
    for _ in range(2):
        found = torch.autograd.grad(ours.loss, wanted, retain_graph=True)
        torch.testing.assert_close(
            found[0],
            torch.autograd.grad(plain.loss, [plain.leaves["centre"]], retain_graph=True)[0],
        )
    for _ in range(2):  # once and once more, on the same graph
        ours.loss.backward(retain_graph=True)
        plain.loss.backward(retain_graph=True)
    torch.testing.assert_close(ours.leaves["weight"].grad, plain.leaves["weight"].grad)


def test_a_pass_that_failed_leaves_nothing() -> None:
    ours, plain = Layer(True), Layer(False)

    def fail(gradient: Tensor) -> None:
        raise RuntimeError("half way")

    handle = ours.middle.register_hook(fail)  # behind the rows, before the interval
    with pytest.raises(RuntimeError, match="half way"):
        ours.loss.backward(retain_graph=True)
    handle.remove()
    for layer in (ours, plain):
        (layer.leaves["weight"].grad,) = torch.autograd.grad(layer.loss, [layer.leaves["weight"]])
    torch.testing.assert_close(ours.leaves["weight"].grad, plain.leaves["weight"].grad)


def test_gathered_weights_can_be_differentiated_twice() -> None:
    ours, plain = Layer(True), Layer(False)
    (first,), (second,) = (
        torch.autograd.grad(layer.loss, [layer.leaves["weight"]], create_graph=True)
        for layer in (ours, plain)
    )
    torch.testing.assert_close(first, second)
    first.square().sum().backward()
    second.square().sum().backward()
    for name, leaf in ours.leaves.items():
        torch.testing.assert_close(leaf.grad, plain.leaves[name].grad)


def test_large_factors_are_multiplied_at_once() -> None:
    weight = draw(3, 2).requires_grad_()
    (rows_linear(draw(5, 7, 3, seed=1), gathered(weight)) ** 2).sum().backward()
    expected = draw(3, 2).requires_grad_()
    ((draw(5, 7, 3, seed=1) @ expected) ** 2).sum().backward()
    torch.testing.assert_close(weight.grad, expected.grad)


# -- folding ---------------------------------------------------------------------------------------


FOLDED = {
    "conv": (
        nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Conv2d(3, 2, 3, bias=False),
            nn.BatchNorm2d(2),
        ),
        (2, 6, 6),
    ),
    "1d": (
        nn.Sequential(nn.Conv1d(2, 3, 3, stride=2), nn.BatchNorm1d(3, affine=False), nn.ReLU()),
        (2, 9),
    ),
    "3d": (nn.Sequential(nn.Conv3d(1, 2, 2, groups=1), nn.BatchNorm3d(2), nn.ReLU()), (1, 3, 3, 3)),
    "linear": (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)), (4,)),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", FOLDED)
def test_folding_changes_nothing(name: str, train: bool) -> None:
    torch.manual_seed(0)
    model, shape = FOLDED[name]
    model = model.double().train()
    for _ in range(5):
        model(torch.rand(8, *shape, dtype=torch.float64))
    with torch.no_grad():
        for module in model:
            if hasattr(module, "running_mean") and module.weight is not None:
                module.weight.uniform_(-1, 1)
    x = torch.rand(3, *shape, dtype=torch.float64)
    model.train(train)
    net = bl.capture(model, x)
    norms = sum(hasattr(module, "running_mean") for module in model)
    variable = net.graph.dependents(set(net.graph.inputs), CUTS)
    folded = fold(net.graph, variable, tuple(o.name for o in net.graph.outputs))
    assert sum(node.name.endswith(".weight") for node in folded.nodes.values()) == norms
    region = bl.Linf(x, 0.05)
    for method in ("ibp", "crown", "forward", "crown-ibp"):
        short, whole = (
            net.bounds(region, method=method),
            net.bounds(region, method=method, intermediates=True),
        )
        # intermediates=True refines more, folding may only be tighter too
        tighter = 1e-9 + 1e-6 * whole.width.abs()
        assert (short.lower >= whole.lower - tighter - 0.02 * whole.width).all() and (
            short.upper <= whole.upper + tighter + 0.02 * whole.width
        ).all()
    point = net.bounds(bl.Linf(x, 0.0), method="ibp")
    torch.testing.assert_close(point.lower, model(x))


def test_what_is_perturbed_or_read_elsewhere_is_not_folded() -> None:
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(1, 2, 3).double(), nn.BatchNorm2d(2).double().eval()

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = conv, norm

        def forward(self, x: Tensor) -> Tensor:
            h = self.conv(x)
            return self.norm(h) + h

    x = torch.rand(2, 1, 5, 5, dtype=torch.float64)
    net = bl.capture(Twice().eval(), x)
    variable = net.graph.dependents(set(net.graph.inputs), CUTS)
    assert not any(".weight" in name for name in fold(net.graph, variable, ()).nodes)
    plain = bl.capture(nn.Sequential(conv, norm).eval(), x)
    found = plain.bounds(x, perturb={"1.weight": bl.Linf(eps=0.1)}, method="ibp")
    scale = torch.rsqrt(norm.running_var + norm.eps)[:, None, None]
    # exact, as the input is fixed
    exact = ((conv(x) - norm.running_mean[:, None, None]) * scale).abs() * 0.1
    torch.testing.assert_close(found.width, 2 * exact)


# -- balls -----------------------------------------------------------------------------------------


def test_a_ball_through_a_relu() -> None:
    centre, radius = draw(4, 5).requires_grad_(), draw(4, 5, seed=1).abs().requires_grad_()
    assert torch.autograd.gradcheck(rectified_ball, (centre, radius))
    assert torch.autograd.gradgradcheck(rectified_ball, (centre, radius))
    expected = Interval((centre - radius).clamp(min=0), (centre + radius).clamp(min=0)).ball
    torch.testing.assert_close(rectified_ball(centre, radius), expected)


def test_moments_of_channels() -> None:
    for shape in ((6, 3), (4, 3, 5), (2, 3, 4, 5)):
        x = draw(*shape).requires_grad_()
        assert torch.autograd.gradcheck(moments, (x,)) and torch.autograd.gradgradcheck(
            moments, (x,)
        )
        dims = [0, *range(2, len(shape))]
        torch.testing.assert_close(
            moments(x), torch.stack([x.mean(dims), x.var(dims, correction=0)])
        )


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 3, 2)])
def test_constants_are_summed_by_samples(shape: tuple[int, ...]) -> None:
    middle, radius = draw(*shape), draw(*shape, seed=1).abs()
    inputs = [
        tensor.requires_grad_()
        for tensor in (draw(2, *shape, seed=2), middle - radius, middle + radius)
    ]
    (_, whole), (_, sums) = rectified(*inputs), rectified(*inputs, summed=True)
    torch.testing.assert_close(sums, whole.reshape(2, 7, -1).sum(2))
    for a, b in zip(
        torch.autograd.grad((sums**3).sum(), inputs),
        torch.autograd.grad((whole.reshape(2, 7, -1).sum(2) ** 3).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_a_ball_knows_its_ends_whoever_asks() -> None:
    centre, radius = draw(3).requires_grad_(), draw(3, seed=1).abs()
    x = MidRad(centre, radius)
    assert (x.shape, x.dtype, x.device) == (
        centre.shape,
        centre.dtype,
        centre.device,
    ) and x.ball == (x.centre, x.radius)
    with torch.no_grad():
        assert not (x.lower > x.upper).any()
    (gradient,) = torch.autograd.grad(x.lower.sum(), centre)
    torch.testing.assert_close(gradient, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_absolute_dots_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fused.BLOCK, "cpu", block)
    generator = torch.Generator().manual_seed(0)
    rows, others, weights = (
        torch.randn(n, 11, dtype=torch.float64, generator=generator).requires_grad_()
        for n in (4, 3, 3)
    )
    expected = ((rows[:, None] - others).abs() * weights).sum(2)
    found = fused.absolute_dots(rows, others, weights)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    for got, want in zip(
        torch.autograd.grad(found, (rows, others, weights), upstream),
        torch.autograd.grad(expected, (rows, others, weights), upstream),
        strict=True,
    ):
        torch.testing.assert_close(got, want)
    assert fused.absolute_dots(rows[:0], others, weights).shape == (0, 3)


class Tail(nn.Module):
    """Operators behind the last ReLU that read every element once, or not."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.first, self.last = (
            way,
            nn.Conv2d(1, 4, 3, padding=1).double(),
            nn.Linear(4 if way == "mean" else 16, 5).double(),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        ways = {
            "pool": lambda: F.avg_pool2d(y, 4),
            "gaps": lambda: F.avg_pool2d(y, 3, 5, padding=1),
            "overlap": lambda: F.avg_pool2d(y, 6, 2),
            "mean": lambda: y.mean((2, 3)),
            "layers": lambda: (
                F.avg_pool2d(y, 4).flatten(1)
                @ torch.linspace(-1, 1, 256, dtype=y.dtype).reshape(16, 16)
            ),
        }
        return self.last(ways[self.way]().flatten(1))


@pytest.mark.parametrize("way", ["pool", "gaps", "overlap", "mean", "layers"])
def test_nothing_is_lost_where_merging_ends(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences of outputs by interval arithmetic, ending as early as allowed and as late as
    possible."""
    torch.manual_seed(0)
    model, x, labels = (
        Tail(way),
        torch.rand(3, 1, 8, 8, dtype=torch.float64),
        torch.tensor([0, 4, 2]),
    )
    region = bl.Linf(x, 0.1)
    early = bl.capture(model, x)
    found = (
        bl.robust_cross_entropy(early, region, labels, method="ibp"),
        early.margins(region, labels, method="ibp"),
    )
    analysis = early.ask((region,), {}, "ibp", None, "adaptive").analysis
    assert ("linear" in " ".join(analysis.plan.settled)) is False
    ends_early = len(analysis.plan.settled - analysis.plan.nonlinear) > 0
    assert ends_early == (way != "overlap")
    monkeypatch.setattr(Plan, "settled", property(lambda plan: plan.nonlinear))
    late = bl.capture(model, x)
    torch.testing.assert_close(
        found[0], bl.robust_cross_entropy(late, region, labels, method="ibp")
    )
    torch.testing.assert_close(found[1], late.margins(region, labels, method="ibp"))


def test_common_rows_and_their_gradient() -> None:
    rows = draw(4, 1, 2, 3).requires_grad_()
    pick = lambda rows: common(rows.expand(-1, 5, -1, -1))
    assert torch.equal(pick(rows), rows[:, 0])
    assert torch.autograd.gradcheck(pick, (rows,)) and torch.autograd.gradgradcheck(
        lambda rows: pick(rows) ** 2, (rows,)
    )
    shared = rows.expand(-1, 5, -1, -1)
    (gradient,) = torch.autograd.grad(common(shared).sum(), shared)
    # there once, not for every sample
    assert gradient.untyped_storage().nbytes() <= 8 * rows.numel()
