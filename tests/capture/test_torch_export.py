"""Capturing: inputs and outputs, and what cannot be captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from tests.helpers.contract import METHODS, assert_close, check_sound, steps
from tests.networks import perceptron

# -- inputs and outputs ----------------------------------------------------------------------------


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor, *, y: Tensor | None = None, scale: float = 1.0) -> Tensor:
        out = torch.relu(self.a(x))
        out = out if y is None else out * self.b(y)
        return scale * out


def test_keyword_arguments() -> None:
    model, x, y = Keywords(), torch.rand(2, 3), torch.rand(2, 2)
    net = bl.capture(model, x, y=y, scale=3.0)
    for method in METHODS:
        point = net.bounds(
            bl.Linf(x, 0.0), y=bl.Linf(y, 0.0), scale=3.0, method=method, alpha=steps(method)
        )
        assert_close(point.lower, model(x, y=y, scale=3.0), 10)
        bounds = net.bounds(
            bl.Linf(x, 0.1), y=bl.Linf(y, 0.1), scale=3.0, method=method, alpha=steps(method)
        )
        for _ in range(10):
            value = model(
                x + 0.2 * torch.rand_like(x) - 0.1, y=y + 0.2 * torch.rand_like(y) - 0.1, scale=3.0
            )
            assert (bounds.lower <= value + 1e-5).all()
            assert (value <= bounds.upper + 1e-5).all()
    assert_close(bl.capture(model, x).bounds(bl.Linf(x, 0.0)).lower, model(x))
    with pytest.raises(bl.ArgumentError):
        net.bounds(bl.Linf(x, 0.1), y=y)


@pytest.mark.parametrize("value", [5.0, 2])
def test_arguments_that_are_not_tensors_are_fixed(value: float) -> None:
    """A number is part of the captured graph: another one must be refused, never ignored."""
    model, x = Keywords(), torch.rand(2, 3)
    net = bl.capture(model, x, scale=3.0)
    with pytest.raises(bl.ArgumentError, match="scale"):
        net.bounds(bl.Linf(x, 0.1), scale=value)


def test_inputs_in_lists_and_dicts() -> None:
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    net = bl.capture(lambda pair: pair[0] * pair[1], [x, y])
    assert_close(net.bounds([bl.Linf(x, 0.0), y]).lower, x * y)
    net = bl.capture(lambda named: named["a"] - named["b"], {"a": x, "b": y})
    assert_close(net.bounds({"a": bl.Linf(x, 0.1), "b": bl.Linf(y, 0.2)}).lower, x - y - 0.3)


OTHERS = {"matrix": (3, 2), "matrix as long as the batch": (3, 4), "number": (), "one number": (1,)}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("perturbed", [False, True])
def test_second_input_without_a_batch(name: str, perturbed: bool) -> None:
    shape = OTHERS[name]
    f = (lambda x, w: torch.tanh(x @ w)) if len(shape) == 2 else (lambda x, w: torch.tanh(x * w))
    x, w = torch.rand(3 if "long" in name else 4, 3), torch.rand(shape)
    net = bl.capture(f, x, w)
    check_sound(f, (bl.Linf(x, 0.1), bl.Linf(w, 0.1) if perturbed else w), net=net, count=4)


OUTPUTS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "tuple": (lambda x: (x.relu(), 2 * x), lambda out: out[1]),
    "list": (lambda x: [x.relu(), 2 * x], lambda out: out[1]),
    "dict": (lambda x: {"a": x.relu(), "b": {"c": 2 * x}}, lambda out: out["b"]["c"]),
    "input itself": (lambda x: (x, 2 * x), lambda out: out[1]),
    "twice the same": (lambda x: [2 * x] * 2, lambda out: out[0]),
    "constant": (lambda x: (torch.ones(3), 2 * x), lambda out: out[1]),
    "none and numbers": (lambda x: (None, 3, 2 * x), lambda out: out[2]),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name: str) -> None:
    f, pick = OUTPUTS[name]
    x = torch.rand(2, 3) - 0.5
    net = bl.capture(f, x)
    for method in METHODS:
        bounds = net.bounds(bl.Linf(x, 0.1), method=method, alpha=steps(method))
        assert isinstance(bounds, type(f(x)))
        assert_close(pick(bounds).lower, 2 * x - 0.2)
        assert_close(pick(bounds).upper, 2 * x + 0.2)
    with pytest.raises(bl.ArgumentError):
        net.bounds(bl.Linf(x, 0.1), spec=torch.eye(3))


def test_truth_values_as_output() -> None:
    x = torch.tensor([[0.2, 0.5, 0.8]])
    bounds = bl.capture(lambda x: x > 0.5, x).bounds(bl.Linf(x, 0.1))
    assert bounds.lower.tolist() == [[False, False, True]]
    assert bounds.upper.tolist() == [[False, True, True]]
    assert "Bounds" in repr(bounds)


def test_wrong_inputs_are_refused() -> None:
    x = torch.rand(2, 3)
    net = bl.capture(perceptron(), x)
    for entry in (torch.rand(2, 4), torch.rand(3), x.double()):
        with pytest.raises(bl.ArgumentError):
            net.bounds(bl.Linf(entry, 0.1))
    with pytest.raises(bl.ArgumentError):
        net.bounds(x)
    with pytest.raises(bl.ArgumentError):
        net.bounds(bl.Linf(x, 0.1), x)


# -- what cannot be captured -----------------------------------------------------------------------


def test_shapes_that_depend_on_values_are_refused() -> None:
    with pytest.raises(bl.BoundlabError):
        bl.capture(lambda x: x[x > 0.5], torch.rand(4, 3))


def test_choices_by_value_are_refused() -> None:
    with pytest.raises(bl.CaptureError, match=r"torch\.where"):
        bl.capture(lambda x: x if x.sum() > 0 else -x, torch.rand(4, 3))
