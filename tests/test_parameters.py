"""Perturbed parameters: alone, together, and with perturbed inputs, attacked by members of the
weight ball."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import boundlab as bl
from tests.helpers.captures import captured
from tests.helpers.contract import (
    METHODS,
    assert_close,
    assert_inside,
    assert_within,
    members,
    slack,
    steps,
)
from tests.networks import NETWORKS, stir


class Words(nn.Module):
    """A classifier of three words; the padding word has no gradient but moves with the embedding
    like any other."""

    def __init__(self, padding: int | None) -> None:
        super().__init__()
        self.embed, self.fc = nn.Embedding(6, 3, padding_idx=padding), nn.Linear(9, 2)
        nn.init.normal_(self.embed.weight)

    def forward(self, t: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.embed(t)).flatten(1))


def body(first: nn.Module, act: nn.Module, features: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(first, act, nn.Flatten(), nn.Linear(features, 2))


WORDS = torch.tensor([[0, 1, 2], [3, 0, 5], [1, 1, 0]])


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...] | Tensor]] = {
    "linear": (body(nn.Linear(3, 4), nn.ReLU(), 4), (3,)),
    "linear without bias": (body(nn.Linear(3, 4, bias=False), nn.Tanh(), 4), (3,)),
    "conv 1d": (body(nn.Conv1d(2, 3, 3, padding=1), nn.ReLU(), 12), (2, 4)),
    "conv 2d": (body(nn.Conv2d(2, 2, 2, stride=2), nn.ReLU(), 8), (2, 4, 4)),
    "conv 2d, grouped and dilated": (
        body(nn.Conv2d(4, 4, 2, groups=2, padding=1, dilation=2), nn.ReLU(), 36),
        (4, 3, 3),
    ),
    "transposed conv 2d": (body(nn.ConvTranspose2d(2, 2, 2, stride=2), nn.ReLU(), 32), (2, 2, 2)),
    "transposed conv 1d": (
        body(nn.ConvTranspose1d(2, 2, 3, 2, 1, output_padding=1), nn.Sigmoid(), 12),
        (2, 3),
    ),
    "batch norm 2d": (body(nn.BatchNorm2d(2), nn.ReLU(), 18), (2, 3, 3)),
    "batch norm 1d": (body(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.ReLU(), 4), (3,)),
    "layer norm": (
        body(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4, eps=1e-2)), nn.ReLU(), 4),
        (3,),
    ),
    "embedding": (lambda: Words(None), WORDS),
    "embedding with padding": (lambda: Words(0), WORDS),
}
"""Name -> a network of a few layers (fresh parameters by seed), and the shape of a sample or the
inputs themselves."""


assert not MODELS.keys() & NETWORKS.keys()


@functools.cache
def prepared(name: str) -> tuple[nn.Module, bl.Net, Tensor]:
    if name in NETWORKS:
        model, net = captured(name)
        (x,) = NETWORKS[name].inputs(2)
        return model, net, x
    build, data = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = stir(build()).eval()
        x = data if isinstance(data, Tensor) else torch.rand(3, *data) - 0.3
    return model, bl.capture(model, x), x


REGIONS: dict[str, Callable[[Tensor], bl.Region]] = {
    "Linf": lambda w: bl.Linf(eps=0.03),
    "L2": lambda w: bl.L2(eps=0.1),
    "L1": lambda w: bl.L1(eps=0.2),
    "Linf per element": lambda w: bl.Linf(
        eps=0.05 * (torch.arange(w.numel()).reshape(w.shape) % 3)
    ),
    "L2 per element": lambda w: bl.L2(eps=0.1 * (torch.arange(w.numel()).reshape(w.shape) % 3)),
    "Box": lambda w: bl.Box(w.detach() - 0.01, w.detach() + 0.04),
}


def weight_members(
    model: nn.Module, regions: Mapping[str, bl.Region], x: Tensor, count: int
) -> list[dict[str, Tensor]]:
    """Random members of the weight balls, vertices and boundary points, and what one gradient step
    finds."""
    values = {name: model.get_parameter(name).detach() for name in regions}
    placed = {name: region.at(values[name]) for name, region in regions.items()}
    lists = {
        name: members(region, count, seed, batched=False)
        for seed, (name, region) in enumerate(placed.items())
    }
    points = [
        {name: found[i % len(found)] for name, found in lists.items()}
        for i in range(max(map(len, lists.values())))
    ]
    for sign in (1.0, -1.0):
        for output in range(2):
            leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
            target = sign * functional_call(model, leaves, (x,))[0].flatten()[-output]
            gradients = torch.autograd.grad(target, list(leaves.values()))
            points.append(
                {name: steepest(placed[name], g) for name, g in zip(placed, gradients, strict=True)}
            )
    return points


def steepest(region: bl.Region, gradient: Tensor) -> Tensor:
    """The member of a region that is farthest along a gradient."""
    if region.is_box:
        box = region.hull()
        return torch.where(gradient >= 0, box.upper, box.lower)
    x, eps = region.centre, torch.as_tensor(region.eps)  # type: ignore[attr-defined]
    scaled = gradient * eps
    if region.order == 2:  # type: ignore[attr-defined]
        return x + eps * scaled / scaled.norm().clamp(min=1e-12)
    one = torch.zeros_like(scaled).flatten()
    best = int(scaled.abs().argmax())
    one[best] = scaled.flatten()[best].sign()
    return x + eps * one.reshape(x.shape)


def attack(
    name: str,
    regions: Mapping[str, bl.Region],
    entry: bl.Region | Tensor,
    methods: tuple[str, ...] = METHODS,
    count: int = 4,
) -> None:
    model, net, x = prepared(name)
    points = weight_members(model, regions, x, count)
    inputs = members(entry, count, 9) if isinstance(entry, bl.Region) else [entry]
    for method in methods:
        bounds = net.bounds(entry, perturb=regions, method=method, alpha=steps(method))
        lower, upper = bounds.lower.detach(), bounds.upper.detach()
        assert torch.isfinite(lower).all()
        assert torch.isfinite(upper).all()
        for i, point in enumerate(points):
            with torch.no_grad():
                value = functional_call(model, point, (inputs[i % len(inputs)],))
            assert_inside(value, lower, upper, f"{method}, {', '.join(regions)}")


def perturbable(name: str) -> list[str]:
    model, net, _ = prepared(name)
    return [
        path for path in net.graph.parameters.values() if path in dict(model.named_parameters())
    ]


def placed(name: str, paths: list[str], kind: str) -> dict[str, bl.Region]:
    model, _, _ = prepared(name)
    return {path: REGIONS[kind](model.get_parameter(path)) for path in paths}


@pytest.mark.parametrize("kind", ["Linf", "L2", "L1"])
@pytest.mark.parametrize("name", MODELS)
def test_one_parameter(name: str, kind: str) -> None:
    _, _, x = prepared(name)
    for path in perturbable(name):
        attack(name, placed(name, [path], kind), x)


@pytest.mark.parametrize("kind", ["Linf per element", "L2 per element", "Box"])
@pytest.mark.parametrize("name", ["linear", "conv 2d", "batch norm 1d", "embedding"])
def test_radii_per_element(name: str, kind: str) -> None:
    _, _, x = prepared(name)
    attack(name, placed(name, perturbable(name), kind), x)


@pytest.mark.parametrize("kind", ["Linf", "L2", "L1"])
@pytest.mark.parametrize("name", MODELS)
def test_all_parameters(name: str, kind: str) -> None:
    _, _, x = prepared(name)
    attack(name, placed(name, perturbable(name), kind), x)


@pytest.mark.parametrize("kind", ["Linf", "L2"])
@pytest.mark.parametrize("name", [name for name in MODELS if "embedding" not in name])
def test_parameters_and_inputs(name: str, kind: str) -> None:
    _, _, x = prepared(name)
    attack(name, placed(name, perturbable(name), kind), bl.Linf(x, 0.05))
    attack(name, placed(name, perturbable(name)[:1], kind), bl.L2(x, 0.1))


INSIDE: dict[str, tuple[str, ...]] = {
    "vit": (
        "cls",
        "position",
        "patch.weight",
        "encoder.layers.0.self_attn.in_proj_weight",
        "encoder.layers.0.norm1.weight",
        "head.bias",
    ),
    "lstm": ("rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_hh_l0", "fc.weight"),
    "gru": ("rnn.weight_hh_l0", "rnn.bias_ih_l0"),
    "rnn-relu": ("rnn.weight_ih_l0", "rnn.weight_hh_l0_reverse"),
    "lstm-cell": ("cell.weight_hh",),
    "convnext": ("gamma", "norm.weight", "dwconv.weight"),
    "attention-windows": ("table", "qkv.weight"),
    "attention-pooling": ("query", "score.bias"),
    "rbf": ("centres", "log_width"),
    "lyapunov": ("factor", "net.0.weight"),
    "functional": ("w1", "b1", "w2"),
    "shared": ("fc.weight", "fc.bias"),
}


SLOW = frozenset(("vit", "lstm", "gru", "rnn-relu", "convnext", "attention-windows"))


LARGER = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in INSIDE]


@pytest.mark.parametrize("name", LARGER)
def test_parameters_inside_networks(name: str) -> None:
    _, _, x = prepared(name)
    for path in INSIDE[name] if len(INSIDE[name]) > 1 else ():
        attack(name, {path: bl.Linf(eps=0.01)}, x, count=2)
    attack(name, {path: bl.L2(eps=0.02) for path in INSIDE[name]}, bl.Linf(x, 0.005), count=2)


def test_tokens_and_positions_of_a_transformer() -> None:
    """The class token is expanded over the batch, the positions are added to every sample."""
    _, _, x = prepared("vit")
    attack(
        "vit",
        {"cls": bl.L2(eps=0.02), "position": bl.Linf(eps=0.005)},
        x,
        methods=("ibp", "crown-ibp", "forward"),
        count=2,
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*MODELS, "shared", "attention-pooling", "conv1d"])
def test_samples_do_not_influence_each_other(name: str, method: str) -> None:
    """A weight is one for all samples, but each sample has its own worst case."""
    _, net, x = prepared(name)
    regions = placed(name, perturbable(name), "L2")
    entry = (lambda x: bl.Linf(x, 0.02)) if x.is_floating_point() else (lambda x: x)
    whole = net.bounds(entry(x), perturb=regions, method=method, alpha=steps(method))
    for i in range(len(x)):
        alone = net.bounds(entry(x[i : i + 1]), perturb=regions, method=method, alpha=steps(method))
        for a, b in ((whole.lower[i], alone.lower[0]), (whole.upper[i], alone.upper[0])):
            # a gradient that is nearly zero takes its sign from rounding, so optimised slopes
            # differ a little
            room = 50 if METHODS[method].optimize else 3
            assert_close(a, b, room)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*MODELS, "shared", "functional"])
def test_radius_zero_is_the_value(name: str, method: str) -> None:
    model, net, x = prepared(name)
    value = model(x).detach()
    for ball in (bl.Linf, bl.L2, bl.L1):
        bounds = net.bounds(
            x,
            perturb={path: ball(eps=0.0) for path in perturbable(name)},
            method=method,
            alpha=steps(method),
        )
        for end in bounds:
            assert_within((end - value).detach().abs(), 10 * slack(value), "radius 0: differs")


@pytest.mark.parametrize("method", METHODS)
def test_an_affine_parameter_is_bounded_exactly(method: str) -> None:
    """The output is affine in the last layer: the bounds are the extreme values themselves."""
    model, net, x = prepared("linear")
    with torch.no_grad():
        hidden, value = model[:3](x), model(x)
    for region, weight_room, bias_room in (
        (bl.Linf(eps=0.1), 0.1 * hidden.abs().sum(1), 0.1),
        (bl.L2(eps=0.1), 0.1 * hidden.norm(dim=1), 0.1),
    ):
        weight = net.bounds(x, perturb={"3.weight": region}, method=method, alpha=steps(method))
        bias = net.bounds(x, perturb={"3.bias": region}, method=method, alpha=steps(method))
        both = net.bounds(
            x, perturb={"3.weight": region, "3.bias": region}, method=method, alpha=steps(method)
        )
        for bounds, room in (
            (weight, weight_room),
            (bias, torch.full_like(weight_room, bias_room)),
            (both, weight_room + bias_room),
        ):
            assert (bounds.upper - value - room[:, None]).abs().max() < 1e-5
            assert (bounds.lower - value + room[:, None]).abs().max() < 1e-5


def test_linear_bounds_in_a_parameter_hold_pointwise() -> None:
    model, net, x = prepared("conv 2d")
    regions = {"0.weight": bl.L2(eps=0.1), "3.bias": bl.Linf(eps=0.1)}
    lines = net.linear_bounds(bl.Linf(x, 0.05), perturb=regions)
    assert lines.lower_A["0.weight"].shape == (3, 2, *model[0].weight.shape)
    for i, point in enumerate(weight_members(model, regions, x, 4)):
        moved = members(bl.Linf(x, 0.05), 4, 0)[i % 8]
        line = lines.evaluate({"input": moved, **point})
        with torch.no_grad():
            assert_inside(
                functional_call(model, point, (moved,)),
                line.lower.detach(),
                line.upper.detach(),
                "linear bounds",
            )
    concrete, bounds = lines.concretize(), net.bounds(bl.Linf(x, 0.05), perturb=regions)
    assert (bounds.lower >= concrete.lower - 1e-5).all()


def test_the_region_follows_the_parameter() -> None:
    model = nn.Linear(3, 2)
    x = torch.rand(2, 3)
    net = bl.capture(model, x)
    with torch.no_grad():
        model.weight.add_(1.0)
    assert (net.bounds(x, perturb={"weight": bl.Linf(eps=0.0)}).lower - model(x)).abs().max() < 1e-5


def test_a_running_statistic_can_be_perturbed() -> None:
    model, net, x = prepared("batch norm 1d")
    for name in ("0.1.running_mean", "0.1.running_var"):
        value = model.get_buffer(name)
        for method in METHODS:
            bounds = net.bounds(
                bl.Linf(x, 0.02),
                perturb={name: bl.Linf(eps=0.1)},
                method=method,
                alpha=steps(method),
            )
            for moved in (value + 0.1, value - 0.1, value):
                with torch.no_grad():
                    assert_inside(
                        functional_call(model, {name: moved}, (x,)),
                        bounds.lower.detach(),
                        bounds.upper.detach(),
                        f"{method}, {name}",
                    )


def test_wrong_parameters_are_refused() -> None:
    _, net, x = prepared("linear")
    for perturb in (
        {"nothing": bl.L2(eps=0.1)},
        {"0.weight": 0.1},
        {"0.weight": bl.Linf(torch.zeros(2, 2), 0.1)},
    ):
        with pytest.raises(bl.ArgumentError):
            net.bounds(x, perturb=perturb)
