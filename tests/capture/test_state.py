"""Capturing: state, modes and saved programs."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.graph.graph import op_name
from tests.helpers.contract import METHODS, assert_close, check_point, check_sound, steps
from tests.networks import NETWORKS, perceptron, stir

# -- state -----------------------------------------------------------------------------------------


def test_training_needs_no_new_capture() -> None:
    model, x = perceptron(), torch.rand(4, 3)
    net = bl.capture(model, x)
    before = net.bounds(bl.Linf(x, 0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    (-net.margins(bl.Linf(x, 0.1), torch.zeros(4, dtype=torch.long))).sum().backward()
    optimizer.step()
    after = net.bounds(bl.Linf(x, 0.1))
    assert (after.lower - before.lower).abs().max() > 1e-3
    assert_close(after.lower, bl.capture(model, x).bounds(bl.Linf(x, 0.1)).lower)
    assert_close(net.bounds(bl.Linf(x, 0.0)).lower, model(x))


def test_a_replaced_parameter_is_seen() -> None:
    model, x = perceptron(), torch.rand(2, 3)
    net = bl.capture(model, x)
    model[0].weight = nn.Parameter(torch.rand(4, 3))
    model.load_state_dict({name: 2 * value for name, value in model.state_dict().items()})
    assert_close(net.bounds(bl.Linf(x, 0.0)).lower, model(x))


def test_a_callable_sees_the_module_it_closes_over() -> None:
    model, x = perceptron(), torch.rand(2, 3)
    net = bl.capture(lambda x: model(x) * 2, x)
    with torch.no_grad():
        model[2].bias.add_(1.0)
    assert_close(net.bounds(bl.Linf(x, 0.0)).lower, 2 * model(x))
    assert net.bounds(x, perturb={"2.bias": bl.Linf(eps=0.1)}).width.min() > 0.39


def test_buffers_and_constants() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))
            self.plain = torch.tensor([0.5, 0.0, -0.5])

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x * self.scale + self.plain) + torch.arange(3) / 2

    model, x = Scaled(), torch.rand(2, 3) - 0.5
    net = bl.capture(model, x)
    check_sound(model, (bl.Linf(x, 0.2),), net=net, count=4)
    model.scale.mul_(-1.0)
    assert_close(net.bounds(bl.Linf(x, 0.0)).lower, model(x))


def test_a_constant_of_the_length_of_the_batch_is_not_summed() -> None:
    noise = torch.rand(4, 3)
    x = torch.rand(4, 3)
    bounds = bl.capture(lambda x: torch.relu(x - noise) * noise, x).bounds(bl.Linf(x, 0.0))
    assert_close(bounds.lower, torch.relu(x - noise) * noise)


def test_modules_shared_between_two_paths() -> None:
    model = NETWORKS["shared"].model()
    (x,) = NETWORKS["shared"].inputs(2)
    net = bl.capture(model, x)
    with torch.no_grad():
        model.fc.weight.mul_(0.5)
    assert_close(net.bounds(bl.Linf(x, 0.0)).lower, model(x))
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    check_sound(tied, (bl.Linf(torch.rand(2, 3), 0.1),), count=4)


# -- modes -----------------------------------------------------------------------------------------


def normed() -> nn.Sequential:
    layers = (
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 4),
        nn.BatchNorm1d(4),
        nn.Tanh(),
        nn.Linear(4, 2),
    )
    return stir(nn.Sequential(*layers))


def test_eval_mode() -> None:
    model = stir(
        nn.Sequential(
            nn.Conv2d(2, 3, 3),
            nn.BatchNorm2d(3),
            nn.Dropout2d(),
            nn.ReLU(),
            nn.Dropout(),
            nn.Flatten(),
            nn.Linear(12, 2),
        )
    ).eval()
    x = torch.rand(2, 2, 4, 4)
    check_point(model, x)
    check_sound(model, (bl.Linf(x, 0.05),), count=4)


@pytest.mark.parametrize("tracked", [True, False])
def test_train_mode_takes_the_statistics_of_the_clean_batch(tracked: bool) -> None:
    model = normed().double().train()
    if not tracked:
        model[1] = nn.BatchNorm2d(3, track_running_stats=False).double()
    for batch in (5, 7):  # the statistics follow the batch, whatever its size
        x = torch.rand(batch, 2, 4, 4, dtype=torch.float64)
        net = bl.capture(model, torch.rand(3, 2, 4, 4, dtype=torch.float64))
        value = copy.deepcopy(model)(x)
        for method in METHODS:
            bounds = net.bounds(bl.Linf(x, 0.0), method=method, alpha=steps(method))
            assert (bounds.lower - value).abs().max() < 1e-12
            assert (bounds.upper - value).abs().max() < 1e-12


def test_train_mode_bounds_hold_with_the_statistics_held() -> None:
    """With the statistics of the clean batch as constants the network is the one in eval mode."""
    model, x = normed().train(), torch.rand(4, 2, 4, 4)
    net = bl.capture(model, x)
    held = copy.deepcopy(model)
    for layer in held:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.momentum = 1.0
    held(x)
    for layer, size in ((held[1], 64), (held[5], 4)):
        layer.running_var.mul_((size - 1) / size)  # torch keeps the unbiased variance
    held.eval()
    constant = bl.capture(held, x)
    # steps of alpha-crown follow the sign of a gradient, which a rounding may turn
    for method in (name for name, row in METHODS.items() if not row.optimize):
        bounds, expected = (
            n.bounds(bl.Linf(x, 0.05), method=method, alpha=steps(method)) for n in (net, constant)
        )
        assert_close(bounds.lower, expected.lower, 10)
        assert_close(bounds.upper, expected.upper, 10)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_flow_through_the_statistics(method: str) -> None:
    model, x = normed().double().train(), torch.rand(4, 2, 4, 4, dtype=torch.float64)
    net = bl.capture(model, x)
    weight = model[0].weight

    def loss() -> Tensor:
        # optimised slopes move with the weights
        fixed = bl.Alpha(iterations=0, inner=0) if METHODS[method].optimize else None
        bounds = net.bounds(bl.Linf(x, 0.01), method=method, alpha=fixed)
        return (bounds.upper - bounds.lower).sum() + bounds.lower[0, 0]

    (gradient,) = torch.autograd.grad(loss(), weight)
    direction, step = torch.randn_like(weight), 1e-6
    with torch.no_grad():
        values = []
        for move in (step, -2 * step):
            weight.add_(move * direction)
            values.append(loss())
        weight.add_(step * direction)
    numeric = (values[0] - values[1]) / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(float(numeric), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_changed(training: bool) -> None:
    """Flags, parameters, buffers, gradients and the random number generator are as they were."""
    model, x = normed().train(training), torch.rand(4, 2, 4, 4)
    model[3].train(not training)
    flags = [module.training for module in model.modules()]
    state, random, example = (
        copy.deepcopy(model.state_dict()),
        torch.random.get_rng_state(),
        x.clone(),
    )
    net = bl.capture(model, x)
    for method in METHODS:
        net.bounds(bl.Linf(x, 0.1), method=method, alpha=steps(method))
    assert flags == [module.training for module in model.modules()]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(random, torch.random.get_rng_state())
    assert torch.equal(x, example)


RANDOM: dict[str, tuple[Callable[[Tensor], Tensor] | nn.Module, bool | None]] = {
    "dropout": (nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train(), None),
    "dropout without a batch": (nn.Dropout(0.5).train(), False),
    "attention with dropout": (
        nn.TransformerEncoderLayer(3, 1, 4, batch_first=True).train(),
        False,
    ),
    "noise": (lambda x: x + torch.randn_like(x), None),
    "noise of a fixed size": (lambda x: x + torch.randn(4, 3), False),
    "mask": (lambda x: x * torch.bernoulli(torch.full((3,), 0.5)), False),
}


@pytest.mark.parametrize("name", RANDOM)
def test_randomness_is_refused(name: str) -> None:
    model, batched = RANDOM[name]
    with pytest.raises(bl.CaptureError, match=r"random|eval"):
        bl.capture(model, torch.rand(4, 3), batched=batched)


@pytest.mark.parametrize("mode", ["frozen", "no_grad", "inference_mode"])
def test_without_gradients_the_fused_encoder_is_not_taken(mode: str) -> None:
    """In eval mode and without gradients torch runs a fused kernel, which hides all operators."""
    case = NETWORKS["encoder-post-relu"]
    model, (x,) = case.model(), case.inputs(2)
    model.requires_grad_(mode != "frozen")
    context = {
        "frozen": torch.enable_grad,
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
    }[mode]
    with context():
        net = bl.capture(model, x)
        bounds = net.bounds(bl.Linf(x, 0.0))
    assert {"aten._softmax", "aten.linear"} <= {
        op_name(node.op) for node in net.graph.nodes.values()
    }
    assert_close(bounds.lower, model(x), 10)


# -- saved programs --------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [True, False])
def test_saved_programs(dynamic: bool) -> None:
    model, x = normed().eval(), torch.rand(3, 2, 4, 4)
    program = torch.export.export(
        model, (x,), dynamic_shapes={"input": {0: torch.export.Dim("batch")}} if dynamic else None
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    reference = bl.capture(model, x)
    for net in (bl.capture(loaded), bl.capture(loaded, x)):
        entry = torch.rand(5 if dynamic else 3, 2, 4, 4)
        for method in METHODS:
            bounds, expected = (
                n.bounds(bl.Linf(entry, 0.05), method=method, alpha=steps(method))
                for n in (net, reference)
            )
            assert_close(bounds.lower, expected.lower)
            assert_close(bounds.upper, expected.upper)
        perturbed = net.bounds(entry, perturb={"7.weight": bl.L2(eps=0.1)})
        assert_close(
            perturbed.lower, reference.bounds(entry, perturb={"7.weight": bl.L2(eps=0.1)}).lower
        )
