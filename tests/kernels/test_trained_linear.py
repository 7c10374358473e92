"""One gradient for all that read a weight, and products in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.kernels import trained_linear as layers
from boundlab.kernels.trained_linear import gathered, interval_linear, rows_linear
from boundlab.methods import analysis
from tests.helpers.tensors import draw


def in_blocks(monkeypatch: pytest.MonkeyPatch, block: int, thin: int) -> None:
    """Products with weights in blocks of so many numbers, for up to so many rows."""
    for name, value in {"BLOCK": block, "ROWS": 1, "WIDE": 1, "THIN": thin}.items():
        monkeypatch.setattr(layers, name, value)


def watch_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of a weight each block has, from now on."""
    sizes: list[int] = []
    blocks = layers._blocks

    def watched(weight: Tensor, count: int) -> Iterator[tuple[slice, Tensor]]:
        for rows, room in blocks(weight, count):
            sizes.append(rows.stop - rows.start)
            yield rows, room

    monkeypatch.setattr(layers, "_blocks", watched)
    return sizes


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("block", [1, 12, 1 << 20])
@pytest.mark.parametrize("thin", [0, 32])
def test_intervals_through_a_linear_layer(
    thin: int, block: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch, block, thin)
    sizes = watch_blocks(monkeypatch)
    centre, radius = draw(2, 3, 4), draw(2, 3, 4, seed=1).abs()
    weight, shift = draw(5, 4, seed=2), draw(5, seed=3) if bias else None
    inputs = [tensor.requires_grad_() for tensor in (centre, radius, weight) if tensor is not None]
    function = lambda c, r, w, *b: interval_linear(c, r, w, b[0] if b else None)
    inputs += [shift.requires_grad_()] if shift is not None else []
    assert torch.autograd.gradcheck(function, tuple(inputs))
    middle, reach = interval_linear(centre, radius, weight, shift)
    torch.testing.assert_close(middle, nn.functional.linear(centre, weight, shift))
    torch.testing.assert_close(reach, radius @ weight.abs().T)
    assert max(sizes) == max(1, min(5, block // 4))


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
    sizes = watch_blocks(monkeypatch)
    ours, plain = Layer(True), Layer(False)
    products: list[Any] = []
    product = layers._product
    monkeypatch.setattr(
        layers, "_product", lambda weight, terms: products.append(terms) or product(weight, terms)
    )
    ours.loss.backward()
    assert [len(terms) for terms in products] == [3]  # of the centre, of the radius and of the rows
    assert max(sizes) == max(1, min(20, block // 30))
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
    with pytest.raises(pytest.fail.Exception, match="nobody asked"):  # who asks goes there
        Layer(True).loss.backward()


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
