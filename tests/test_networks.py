"""Whole networks, attacked: the graph computes what the module does, bounds hold, samples do not
influence each other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from tests.helpers.captures import bounds_of, boxes, captured, tensors_of
from tests.helpers.contract import METHODS, assert_close, check_sound, steps
from tests.networks import NETWORKS

SLOW = frozenset(
    (
        "activations", "lstm-time-first", "lstm-two-layers", "lstm-both-ways", "lstm-last-state",
        "gru-two-layers", "gru-both-ways", "gru-cell", "rnn-cell",
        "resnet-bottleneck", "mobilenet-v3", "unet-nearest", "squeezenet", "encoder-time-first",
        "encoder-two-causal", "encoder-two-padding",
        "encoder-two-pre", "lstm", "resnext", "rearranged", "encoder-pre-gelu",
        "attention-time-first", "unet-bilinear", "inception", "gru", "mobilenet-v2", "mixer",
        "attention-by-hand", "conv3d", "text-cnn", "triplet", "kan", "autoencoder", "generator",
        "mlp-float64",
    )
)  # fmt: skip
"""Variants of networks that the ordinary run has in another form."""


def named(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


def single(regions: tuple[bl.Linf, ...], i: int) -> tuple[bl.Linf, ...]:
    return tuple(bl.Linf(region.centre[i : i + 1], region.eps) for region in regions)


@pytest.mark.parametrize("name", named(NETWORKS))
def test_graph_is_the_module(name: str) -> None:
    model, net = captured(name)
    for batch in (1, 2, 5):
        inputs = NETWORKS[name].inputs(batch, seed=batch)
        with torch.no_grad():
            values = net.graph.run(
                net.reader.parameters() | dict(zip(net.graph.inputs, inputs, strict=True))
            )
            truth = tensors_of(model(*inputs))
        assert len(truth) == len(net.graph.outputs)
        for output, value in zip(net.graph.outputs, truth, strict=True):
            assert_close(values[output.name], value, what=f"batch of {batch}")


@pytest.mark.parametrize("name", named(NETWORKS))
def test_bounds_hold(name: str) -> None:
    model, net = captured(name)
    results = check_sound(model, boxes(name, 3), net=net, count=3)
    for method, result in results.items():
        for bound in bounds_of(result):
            assert torch.isfinite(bound.lower).all(), f"{method}: infinite bounds"
            assert torch.isfinite(bound.upper).all(), f"{method}: infinite bounds"


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NETWORKS))
def test_bounds_hold_for_wide_regions(name: str) -> None:
    model, net = captured(name)
    # its square root and logarithm need positive arguments
    scale = 5.0 if name == "rational" else 20.0
    check_sound(model, boxes(name, 2, scale), net=net, count=6)


@pytest.mark.parametrize("name", named(NETWORKS))
def test_samples_do_not_influence_each_other(name: str) -> None:
    """bounds(batch)[i] == bounds(sample i), for a batch size that was not the example's."""
    _, net = captured(name)
    regions = boxes(name, 3)
    for method in ("ibp", "crown-ibp"):
        whole = bounds_of(net.bounds(*regions, method=method, alpha=steps(method)))
        for i in (0, 2):
            for all_of_them, alone in zip(
                whole,
                bounds_of(net.bounds(*single(regions, i), method=method, alpha=steps(method))),
                strict=True,
            ):
                assert_close(
                    all_of_them.lower[i], alone.lower[0], what=f"{method}, sample {i}, lower"
                )
                assert_close(
                    all_of_them.upper[i], alone.upper[0], what=f"{method}, sample {i}, upper"
                )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forward", "crown", "forward+backward"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_samples_do_not_influence_each_other_by_any_method(name: str, method: str) -> None:
    _, net = captured(name)
    regions = boxes(name, 3)
    whole = bounds_of(net.bounds(*regions, method=method, alpha=steps(method)))
    for i in range(3):
        for all_of_them, alone in zip(
            whole,
            bounds_of(net.bounds(*single(regions, i), method=method, alpha=steps(method))),
            strict=True,
        ):
            assert_close(all_of_them.lower[i], alone.lower[0], what=f"sample {i}, lower")
            assert_close(all_of_them.upper[i], alone.upper[0], what=f"sample {i}, upper")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NETWORKS))
def test_radius_zero_is_the_value(name: str) -> None:
    model, net = captured(name)
    inputs = NETWORKS[name].inputs(3, seed=5)
    truth = tensors_of(model(*inputs))
    for method in METHODS:
        for value, bound in zip(
            truth,
            bounds_of(
                net.bounds(*[bl.Linf(x, 0.0) for x in inputs], method=method, alpha=steps(method))
            ),
            strict=True,
        ):
            assert_close(bound.lower, value, 10.0, f"{method}, lower")
            assert_close(bound.upper, value, 10.0, f"{method}, upper")


NORMS = [
    ("mlp", bl.L2),
    ("mlp", bl.L1),
    ("cnn", bl.L2),
    ("densenet", bl.L2),
    ("rnn-tanh", bl.L2),
    ("attention", bl.L1),
    ("siamese", bl.L2),
    ("choices", bl.L2),
]


@pytest.mark.parametrize(("name", "ball"), NORMS)
def test_bounds_hold_in_other_norms(name: str, ball: type) -> None:
    model, net = captured(name)
    case = NETWORKS[name]
    check_sound(
        model, tuple(ball(x, 3 * case.eps) for x in case.inputs(2, seed=5)), net=net, count=6
    )


@pytest.mark.slow
@pytest.mark.parametrize("ball", [bl.L2, bl.L1])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_bounds_hold_in_other_norms_everywhere(name: str, ball: type) -> None:
    test_bounds_hold_in_other_norms(name, ball)


@pytest.mark.parametrize("name", ["deeponet", "siamese", "attention-cross"])
def test_one_of_two_inputs(name: str) -> None:
    """A region on one input and a plain tensor for the other."""
    model, net = captured(name)
    case = NETWORKS[name]
    a, b = case.inputs(3, seed=5)
    check_sound(model, (bl.Linf(a, case.eps), b), net=net, count=4)
    check_sound(model, (a, bl.L2(b, case.eps)), net=net, count=4)


def test_per_sample_and_per_element_radii() -> None:
    model, net = captured("cnn")
    (x,) = NETWORKS["cnn"].inputs(3)
    per_sample = torch.tensor([0.0, 0.02, 0.1])
    bounds = net.bounds(bl.Linf(x, per_sample))
    assert_close(bounds.lower[0], model(x)[0], what="a sample that does not move")
    for i in range(3):
        alone = net.bounds(bl.Linf(x[i : i + 1], float(per_sample[i])))
        assert_close(bounds.lower[i], alone.lower[0], what=f"sample {i}")
    check_sound(model, (bl.Linf(x, per_sample),), net=net, count=4)
    check_sound(model, (bl.Linf(x, 0.1 * (torch.rand_like(x) < 0.3)),), net=net, count=4)


class Masked(nn.Module):
    """Truth values as numbers without a conversion."""

    def forward(self, x: Tensor) -> Tensor:
        return (x > 0.5) * x + x * (x < 0.2)


class Overwritten(nn.Module):
    """Entries chosen by their own value are overwritten."""

    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        y[y < 0.5] = 0.0
        return y


class Doubled(nn.Module):
    """A stretch in double precision."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu((x.double() * 2 - 1).exp().float() - 1)


STYLES: dict[str, nn.Module] = {"truth-values": Masked(), "double": Doubled()}


@pytest.mark.parametrize("name", STYLES)
def test_styles(name: str) -> None:
    x = torch.tensor([[0.4, 0.6, 0.2], [0.9, 0.1, 0.5]])
    # its nodes hold single precision rounding
    check_sound(STYLES[name], (bl.Linf(x, 0.3),), nodes=name != "double")


def test_overwriting_by_value_is_right_or_refused() -> None:
    x = torch.tensor([[0.4, 0.6, 0.2], [0.9, 0.1, 0.5]])
    with contextlib.suppress(bl.UnsupportedOperator):
        check_sound(Overwritten(), (bl.Linf(x, 0.3),))


def test_a_mask_does_not_spoil_forward_mode() -> None:
    """Scores of -inf carry weight 0: forward mode is as tight as without the masked entries."""

    def plain(x: Tensor) -> Tensor:
        return torch.softmax(x, -1) - x

    def masked(x: Tensor) -> Tensor:
        hidden = torch.tensor([False, False, True])
        return (torch.softmax(x.masked_fill(hidden, -torch.inf), -1) - x)[:, :2]

    x = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    for method in ("forward", "crown"):
        short = bl.capture(plain, x[:, :2]).bounds(
            bl.Linf(x[:, :2], 0.1), method=method, alpha=steps(method)
        )
        long = bl.capture(masked, x).bounds(bl.Linf(x, 0.1), method=method, alpha=steps(method))
        assert_close(short.lower, long.lower, what=method)
        assert_close(short.upper, long.upper, what=method)
