"""Methods: wrong answers of the past, one test a cause."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundlab as bl
from boundlab.demo.model import load_digits, load_model
from tests.helpers.contract import METHODS, slack, steps
from tests.helpers.exact import answers, assert_exact, assert_holds, exact_affine
from tests.helpers.models import perceptron
from tests.helpers.tensors import draw

# -- batch and repetition --------------------------------------------------------------------------


def test_repeat_in_backward_mode() -> None:
    weight, x = draw(12, 4), draw(3, 4)
    f = lambda x: x.repeat(1, 3) @ weight
    lower, upper = exact_affine(f, x, 0.3)
    for method, bounds in answers(f, bl.Linf(x, 0.3)).items():
        assert_holds(bounds, torch.stack([lower, upper]), method)
        if method != "ibp":  # for intervals the copies of an element move apart
            assert_exact(bounds, lower, upper, method)


def test_a_constant_that_carries_the_batch_is_taken_by_sample() -> None:
    """A sample's bounds do not depend on its company."""
    x, constant, weight = draw(3, 3), draw(3, 3, seed=1), draw(3, 2, seed=2)
    whole = answers(lambda x: F.relu(x + constant) @ weight * constant[:, :2], bl.Linf(x, 0.5))
    for i in range(3):
        mine, sample = constant[i : i + 1], x[i : i + 1]
        for method, alone in answers(
            lambda x, mine=mine: F.relu(x + mine) @ weight * mine[:, :2], bl.Linf(sample, 0.5)
        ).items():
            assert_exact(
                alone, whole[method].lower[i : i + 1], whole[method].upper[i : i + 1], method
            )


def test_a_constant_concatenated_in_front_of_an_input_without_a_batch() -> None:
    constant, x = (
        torch.tensor([5.0, -3.0], dtype=torch.float64),
        torch.tensor([0.4, -0.2], dtype=torch.float64),
    )
    model = lambda x: torch.relu(torch.cat([constant, x])) * 2
    net = bl.capture(model, x, batched=False)
    bounds = net.bounds(bl.Linf(x, 0.3), method="crown")
    for corner in torch.cartesian_prod(*[torch.tensor([-0.3, 0.3], dtype=torch.float64)] * 2):
        value = model(x + corner)
        assert (bounds.lower <= value + 1e-9).all() and (value <= bounds.upper + 1e-9).all()


@pytest.mark.parametrize("method", METHODS)
def test_bounds_can_be_differentiated_twice(method: str) -> None:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double(),
        torch.rand(2, 3, dtype=torch.float64),
    )
    bounds = bl.capture(model, x).bounds(bl.Linf(x, 0.2), method=method, alpha=steps(method))
    (first,) = torch.autograd.grad(
        (bounds.upper - bounds.lower).square().sum(), model[0].weight, create_graph=True
    )
    (second,) = torch.autograd.grad(first.square().sum(), model[0].weight)
    assert torch.isfinite(second).all() and second.abs().max() > 0


@pytest.mark.parametrize("with_spec", [False, True])
@pytest.mark.parametrize("method", ["crown-ibp", "crown", "forward+backward", "alpha-crown"])
def test_sums_of_both_precisions(method: str, with_spec: bool) -> None:
    """Coefficients of an argument in single precision were passed on in double precision, which its
    own layers do not take."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.first, self.second = (
                nn.Conv1d(1, 2, 3, padding=1),
                nn.Linear(8, 3),
                nn.Linear(3, 3).double(),
            )

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.first(torch.relu(self.conv(x)).flatten(1)))
            return torch.cat([self.second(h.double()), h], 1) - h.repeat(1, 2)

    torch.manual_seed(0)
    model, x = Mixed(), torch.rand(2, 1, 4)
    region = bl.Linf(x, 0.2)
    found = bl.capture(model, x).bounds(
        region, method=method, spec=torch.eye(6) if with_spec else None
    )
    outputs = torch.stack([model(region.sample()) for _ in range(200)])
    assert found.lower.dtype == torch.float64
    assert (found.lower <= outputs + 1e-6).all() and (found.upper >= outputs - 1e-6).all()


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown", "forward+backward"])
@pytest.mark.parametrize("product", ["elementwise", "matrices"])
def test_perturbed_weights_that_are_expanded_to_the_batch(method: str, product: str) -> None:
    """Such a value has no samples, though an entry for each of them: its coefficients had no
    place."""

    class Expanded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 6)
            self.register_buffer("place", torch.tensor([1]))

        def forward(self, x: Tensor) -> Tensor:
            row = self.table(self.place.expand(x.shape[0])).relu()
            return (
                row * x
                if product == "elementwise"
                else (row[:, None] @ x.tanh()[:, :, None]).flatten(1)
            )

    torch.manual_seed(0)
    model, x = Expanded(), torch.randn(3, 6)
    region, weights = bl.Linf(x, 0.1), bl.Linf(model.table.weight.detach().clone(), 0.2)
    found = bl.capture(model, x).bounds(region, method=method, perturb={"table.weight": weights})
    for _ in range(200):
        with torch.no_grad():
            model.table.weight.copy_(weights.sample(batched=False))
            output = model(region.sample())
        assert (found.lower <= output + 1e-5).all() and (found.upper >= output - 1e-5).all()


@pytest.mark.parametrize("method", METHODS)
def test_ambient_modes_do_not_matter(method: str) -> None:
    x = torch.rand(3, 4)
    net = bl.capture(perceptron(4, 16, 3), x)
    expected = net.bounds(bl.Linf(x, 0.1), method=method)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = net.bounds(bl.Linf(x, 0.1), method=method)
    assert torch.equal(found.lower, expected.lower) and found.lower.dtype == torch.float32
    with torch.inference_mode():
        inside = net.bounds(bl.Linf(x.clone(), 0.1), method=method)
    torch.testing.assert_close(inside.lower, expected.lower.detach())
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        found = net.bounds(bl.Linf(x, 0.1), method=method)
    finally:
        torch.set_default_dtype(before)
    assert found.lower.dtype == torch.float32
    torch.testing.assert_close(found.lower, expected.lower)


# -- the order of methods --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_crown_is_never_looser_than_crown_ibp(seed: int) -> None:
    torch.manual_seed(seed)
    model, x, labels = perceptron(6, 20, 20, 20, 4), torch.randn(5, 6), torch.randint(0, 4, (5,))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    net = bl.capture(model, x)
    for eps in (0.05, 0.2):
        region = bl.Linf(x, eps)
        crown, cheap = net.bounds(region), net.bounds(region, method="crown-ibp")
        assert (crown.lower >= cheap.lower - slack(cheap.lower)).all()
        assert (crown.upper <= cheap.upper + slack(cheap.upper)).all()
        found, expected = (net.margins(region, labels, method=m) for m in ("crown", "crown-ibp"))
        assert (found >= expected - slack(expected)).all()


def test_crown_proves_what_crown_ibp_proves() -> None:
    """In the demo it did not: tighter intervals make other lines."""
    pixels, labels = load_digits(30)
    images = pixels.float() / 255
    net, region = bl.capture(load_model(), images), bl.Linf(images, 0.15, lower=0.0, upper=1.0)
    with torch.no_grad():
        proved = [
            (net.margins(region, labels, method=method) > 0).all(1)
            for method in ("crown-ibp", "crown")
        ]
    assert not (proved[0] & ~proved[1]).any()


@pytest.mark.parametrize("method", ["ibp", "forward", "crown", "crown-ibp", "forward+backward"])
def test_an_empty_batch_with_perturbed_weights(method: str) -> None:
    net = bl.capture(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.rand(3, 4))
    x, weights = torch.rand(0, 4), {"0.weight": bl.L2(eps=0.1)}
    assert net.bounds(bl.Linf(x, 0.1), perturb=weights, method=method).lower.shape == (0, 2)
    assert net.bounds(x, perturb=weights, method=method).lower.shape == (0, 2)
    if method in ("crown", "crown-ibp", "forward+backward"):
        assert net.linear_bounds(bl.Linf(x, 0.1), method=method).lower_b.shape == (0, 2)
