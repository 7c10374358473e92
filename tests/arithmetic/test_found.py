"""What attacks have found, in their smallest form."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl


class Decided(nn.Module):
    """A comparison of a constant that the model computes, and rounds."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        a, b = torch.rand(3, generator=generator), torch.rand(3, generator=generator)
        for name, value in (("a", a), ("b", b), ("c", a * b)):
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.a * self.b == self.c, x, -x)  # type: ignore[operator]


class Placed(Decided):
    def forward(self, x: Tensor) -> Tensor:
        place = (self.a * self.b).argmax().reshape(1)  # type: ignore[operator]
        return x.index_select(1, place)


class Cancelled(nn.Module):
    """Factors that the model computes: exactly not below 0, executed below it for some."""

    def __init__(self) -> None:
        super().__init__()
        a, b, c = torch.rand(3, 4096, generator=torch.Generator().manual_seed(0))
        exact = a.double() * b.double() * c.double()
        below = torch.nextafter(exact.float(), torch.zeros(4096))
        below = torch.where(exact.float().double() < exact, exact.float(), below)
        for name, value in (("a", a), ("b", b), ("c", c), ("below", below)):
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] * (self.a * self.b * self.c - self.below)  # type: ignore[operator]


LARGEST = torch.finfo(torch.float32).max
MASK = torch.tensor([0.0, -torch.inf, 0.0])
RANDOM = torch.rand(2, 3, generator=torch.Generator().manual_seed(1))
HOLD: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "softplus, beta 3": (lambda x: F.softplus(x, beta=3.0), torch.linspace(-30, 5, 200)[None]),
    "softplus, beta 0.1": (lambda x: F.softplus(x, beta=0.1), torch.linspace(-900, 5, 200)[None]),
    "cosh, up to overflow": (torch.cosh, torch.linspace(80, 89.41, 400)[None]),
    "average by a negative number": (
        lambda x: F.avg_pool2d(x.reshape(-1, 1, 1, 3), 1, divisor_override=-4).flatten(1) + 1,
        RANDOM,
    ),
    "maximum with whole numbers": (lambda x: torch.maximum(x, torch.tensor([1, 0, 2])), RANDOM),
    "shares of whole numbers": (lambda x: x - torch.arange(1, 4) / 3, RANDOM),
    "fake quantisation at ties": (
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127),
        (torch.arange(-120, 120) + 0.5)[None] * 0.1,
    ),
    "mask": (lambda x: torch.softmax(x + MASK, -1), RANDOM),
    "clamp at a number": (lambda x: x.clamp(min=0.1), torch.zeros(1, 3)),
    "a factor that the model computes": (Cancelled().eval(), RANDOM),
    "added whole number": (lambda x: x - 5, RANDOM),
    "negative factor": (lambda x: torch.sub(x, RANDOM, alpha=-0.3), RANDOM),
}
LIKE = torch.rand(1, 3, generator=torch.Generator().manual_seed(2))
FAR: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "lerp": (
        lambda x: torch.lerp(x, torch.zeros(3), 0.9999),
        torch.tensor([[1e6, -3e6, 2.5e7]]),
    ),
    "layer norm": (lambda x: F.layer_norm(x, (3,)), torch.tensor([[1000000.0625, 1e6, 1e6]])),
    "instance norm": (
        lambda x: F.instance_norm(x.unsqueeze(1)).squeeze(1),
        torch.tensor([[1.5e7 + 2, 1.5e7, 1.5e7]]),
    ),
    "logit with eps": (lambda x: torch.logit(x, 1e-6), torch.tensor([[1.0, 0.0, 0.5]])),
    "softplus at its threshold": (
        lambda x: F.softplus(x, beta=3.0, threshold=1.0),
        torch.tensor([[1 / 3, 0.3333, 0.3334]]),
    ),
    "addcmul, overflow on the way": (
        lambda x: torch.addcmul(torch.zeros(3), x, torch.tensor([1e-30] * 3), value=1e20),
        torch.full((1, 3), 1e20),
    ),
    "division by a large number": (lambda x: x / 3.3e38, torch.full((1, 3), 1e38)),
    "a number that replaces infinity": (
        lambda x: torch.where(torch.nan_to_num(torch.tensor([math.inf])) == LARGEST, x, -x),
        torch.tensor([[1.0, 2.0, 3.0]]),
    ),
    "a choice of numbers": (
        lambda x: x + torch.where(torch.tensor([True, False, True]), 1.0, 0.1),
        RANDOM[:1],
    ),
    "truth values that are added": (lambda x: x + torch.tensor([True, False, True]), RANDOM[:1]),
}
"""Functions, and inputs that lie far from the example of the capture."""
REFUSED: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "a decided constant": (Decided().eval(), RANDOM),
    "a place of constants": (Placed().eval(), RANDOM),
    "a large whole number": (lambda x: x.clamp(min=16777217), torch.full((1, 1), 16777214.0)),
    "whole numbers of the default type": (lambda x: torch.bucketize(x, RANDOM[0]) * 0.1, RANDOM),
    "large perturbed whole numbers": (
        lambda x: torch.where(x > -10, ((x > 0).long() + 2) * 16777215, x),
        RANDOM,
    ),
    "bits of whole numbers": (
        lambda x: (torch.bucketize(x, RANDOM[0].sort().values) & 2).to(x.dtype),
        RANDOM,
    ),
    "sums in bytes": (
        lambda x: (
            (torch.bucketize(x, RANDOM[0].sort().values).to(torch.int8) * 60)
            .sum(1, keepdim=True, dtype=torch.int8)
            .to(x.dtype)
        ),
        torch.full((1, 3), 2.0),
    ),
    "a large buffer": (lambda x: torch.maximum(x, torch.tensor([16777217])), RANDOM),
}


@pytest.mark.parametrize("method", ["ibp", "forward", "crown"])
@pytest.mark.parametrize("name", HOLD)
def test_values_lie_inside(name: str, method: str) -> None:
    function, x = HOLD[name]
    found = bl.capture(function, x).bounds(bl.Box(x, x), method=method, arithmetic="float32")
    value = function(x).double()
    unknown = torch.isneginf(found.lower) & torch.isposinf(found.upper)
    assert (unknown | ((found.lower <= value) & (value <= found.upper))).all()


@pytest.mark.parametrize("method", ["ibp", "crown"])
@pytest.mark.parametrize("name", FAR)
def test_values_far_from_the_example_lie_inside(name: str, method: str) -> None:
    function, x = FAR[name]
    found = bl.capture(function, LIKE).bounds(bl.Box(x, x), method=method, arithmetic="float32")
    value = function(x).double()
    unknown = torch.isneginf(found.lower) & torch.isposinf(found.upper)
    assert (unknown | ((found.lower <= value) & (value <= found.upper))).all()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_told_is_refused(name: str) -> None:
    function, x = REFUSED[name]
    with pytest.raises((bl.UnsupportedOperator, bl.DomainError)):
        bl.capture(function, x).bounds(bl.Box(x, x), method="ibp", arithmetic="float32")


def test_an_overflow_in_one_step_is_no_mask() -> None:
    """exp(800) is beyond all numbers of double precision, and its logarithm is 800."""
    x = torch.full((1, 1), 800.0, dtype=torch.float64)
    net = bl.capture(lambda x: x.exp().clamp(max=1.0), x)
    found = net.bounds(bl.Box(x, x), method="ibp", arithmetic="real")
    assert torch.isneginf(found.lower).all() and torch.isposinf(found.upper).all()


def test_maximum_with_whole_numbers_by_crown() -> None:
    net = bl.capture(lambda x: torch.maximum(x, torch.tensor([1, 0, 2])), RANDOM)
    found = net.bounds(bl.Linf(RANDOM, 0.1))
    assert (found.lower <= torch.maximum(RANDOM, torch.tensor([1, 0, 2]))).all()


@pytest.mark.parametrize("method", ["ibp", "forward", "crown"])
def test_functions_of_whole_numbers_are_rounded(method: str) -> None:
    """What they are for each case of the number was taken for what a machine computes."""

    def tenths(x: Tensor) -> Tensor:
        return torch.bucketize(x, torch.arange(40.0)) * torch.full((39,), 0.1)

    x = torch.arange(39.0)[None] + 0.5
    found = bl.capture(tenths, x).bounds(bl.Linf(x, 0.75), method=method, arithmetic="float32")
    for moved in (x - 0.75, x, x + 0.75):
        value = tenths(moved).double()
        assert ((found.lower <= value) & (value <= found.upper)).all()


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "forward", "crown"])
def test_entries_that_a_perturbed_index_picks(method: str) -> None:
    table = torch.rand(5, generator=torch.Generator().manual_seed(0))

    def scaled(x: Tensor) -> Tensor:
        return x * table[torch.bucketize(x, torch.tensor([-0.5, 0.0, 0.4, 0.7]))] + 0.3 * x

    found = bl.capture(scaled, RANDOM).bounds(
        bl.Linf(RANDOM, 0.2), method=method, arithmetic="float32"
    )
    for moved in (RANDOM, *bl.Linf(RANDOM, 0.2).sample().split(2)):
        value = scaled(moved).double()
        assert ((found.lower <= value) & (value <= found.upper)).all()


def test_constants_of_whole_numbers_are_computed_in_double_precision() -> None:
    """In torch's default type a third is off by 1e-8, which real arithmetic is not."""
    net = bl.capture(lambda x: x - torch.arange(1, 4) / 3, RANDOM)
    found = net.bounds(bl.Box(RANDOM, RANDOM), method="ibp", arithmetic="real")
    exact = RANDOM.double() - torch.arange(1, 4).double() / 3
    assert ((found.lower <= exact) & (exact <= found.upper)).all()
    assert float(found.width.max()) < 1e-12


def test_bits_of_whole_numbers_are_no_truth_values() -> None:
    """They were bounded as such, and a property that is violated was said to hold."""
    places = torch.tensor([-10.0, 0.5, 0.75, 0.75])

    def bit(x: Tensor) -> Tensor:
        number = torch.bucketize(x, places) & 2
        return torch.cat([torch.ones_like(x), number.to(x.dtype)], 1)

    x = torch.zeros(1, 1)
    with pytest.raises(bl.UnsupportedOperator, match="bits of perturbed whole numbers"):
        bl.capture(bit, x).bounds(bl.Box(x, x + 1))
    inverted = bl.capture(lambda x: (~torch.bucketize(x, places)).to(x.dtype), x)
    found = inverted.bounds(bl.Box(x, x + 1), method="ibp")
    assert found.lower.tolist() == [[-5.0]] and found.upper.tolist() == [[-2.0]]


def test_numbers_of_the_default_type_are_refused_in_double_precision() -> None:
    x = RANDOM.double()
    net = bl.capture(lambda x: x - torch.ones(3) / 3, x)
    with pytest.raises(bl.UnsupportedOperator, match="default type"):
        net.bounds(bl.Box(x, x), method="ibp", arithmetic="float64")
