"""Functions that are not defined everywhere: an interval that leaves the domain is refused, by the
name of the node."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, special

import boundlab as bl

OUTSIDE: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "erfinv": (torch.erfinv, 1.0),
    "lgamma": (torch.lgamma, 0.0),
    "digamma": (torch.digamma, -0.5),
    "logit": (torch.logit, 1.0),
    "special_ndtri": (special.ndtri, 0.0),
    "special_entr": (special.entr, -0.1),
    "fmod": (lambda x: torch.fmod(torch.ones_like(x), x), 0.0),
}
"""Operator -> a model that holds it, and a point that it is not defined at."""


@pytest.mark.parametrize("method", ["ibp", "crown"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_an_interval_that_leaves_the_domain_is_refused(name: str, method: str) -> None:
    function, point = OUTSIDE[name]
    net = bl.capture(function, torch.full((2, 3), 0.5))
    region = bl.Box(*(torch.full((2, 3), point + d) for d in (-0.01, 0.01)))
    with pytest.raises(bl.DomainError, match=name):
        net.bounds(region, method=method)


@pytest.mark.parametrize("method", ["ibp", "crown"])
@pytest.mark.parametrize("divisor", [0.0, torch.tensor([2.0, 0.0, -2.0])], ids=["number", "tensor"])
@pytest.mark.parametrize("function", [torch.fmod, torch.remainder])
def test_a_fixed_divisor_of_zero_is_refused(
    function: Callable[[Tensor, Tensor | float], Tensor], divisor: Tensor | float, method: str
) -> None:
    """The remainder is NaN there, and its bounds were [0, 0]."""
    x = torch.full((2, 3), 0.5)
    net = bl.capture(lambda x: function(x, divisor), x)
    with pytest.raises(bl.DomainError, match=r"contains zero"):
        net.bounds(bl.Linf(x, 0.1), method=method)


@pytest.mark.parametrize("method", ["ibp", "forward", "crown"])
@pytest.mark.parametrize("divisor", [0.0, torch.tensor([2.0, 0.0, -2.0])], ids=["number", "tensor"])
@pytest.mark.parametrize("mode", ["floor", "trunc", None])
def test_a_rounded_quotient_by_zero_is_refused(
    mode: str | None, divisor: Tensor | float, method: str
) -> None:
    """0 / 0 is NaN, x / 0 infinite: the lines of the first ended in a ZeroDivisionError."""
    x = torch.full((2, 3), 0.5)
    net = bl.capture(lambda x: torch.div(x, divisor, rounding_mode=mode), x)
    with pytest.raises(bl.DomainError, match="a constant that is 0"):
        net.bounds(bl.Linf(x, 1.0), method=method)


ALL = torch.ones(3, dtype=torch.bool)


@pytest.mark.parametrize("method", ["ibp", "forward", "crown", "alpha-crown"])
@pytest.mark.parametrize(
    "scores",
    [
        lambda x: x.masked_fill(ALL, -torch.inf),
        lambda x: x.unsqueeze(1).masked_fill(torch.stack([ALL, ~ALL]), -torch.inf),
        lambda x: torch.where(x > 0.5, x, -torch.inf),
    ],
    ids=["all rows", "one row", "perhaps"],
)
def test_of_a_softmax_row_that_may_be_masked_throughout_nothing_is_known(
    scores: Callable[[Tensor], Tensor], method: str
) -> None:
    """It is NaN, and its bounds were [0, 0], or [0, 1]. Other rows keep theirs."""
    x = torch.full((2, 3), 0.5)
    model = lambda x: torch.softmax(scores(x), -1)
    net, lost = bl.capture(model, x), torch.isnan(model(x))
    found = net.bounds(bl.Linf(x, 0.1), method=method)
    assert lost.any()
    assert torch.isneginf(found.lower[lost]).all() and torch.isposinf(found.upper[lost]).all()
    assert (found.lower[~lost] > 0.28).all() and (found.upper[~lost] < 0.4).all()


@pytest.mark.parametrize("method", ["ibp", "forward", "crown", "alpha-crown"])
def test_what_a_mask_hides_of_a_softmax_row_does_not_count(method: str) -> None:
    """As attention that people write: rows without a score are set to 0 afterwards."""
    gone = torch.stack([ALL, ~ALL])
    x = torch.full((2, 3), 0.5)
    model = lambda x: torch.softmax(x.unsqueeze(1).masked_fill(gone, -torch.inf), -1).masked_fill(
        gone, 0.0
    )
    found = bl.capture(model, x).bounds(bl.Linf(x, 0.1), method=method)
    assert (found.lower <= model(x)).all() and (model(x) <= found.upper).all()
    assert (found.upper - found.lower).max() < 0.1


class Quantized(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((3,), 0.1))
        self.register_buffer("zero", torch.zeros(3, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_channel_affine(x, self.scale, self.zero, 1, -8, 7)  # type: ignore[arg-type]


def test_fake_quantisation_beyond_what_torch_counts_is_refused() -> None:
    net = bl.capture(Quantized(), torch.zeros(2, 3))
    assert bool((net.bounds(bl.Linf(torch.zeros(2, 3), 1e6)).upper <= 0.7 + 1e-6).all())
    with pytest.raises(bl.DomainError, match="within 2\\^62 steps"):
        net.bounds(bl.Linf(torch.zeros(2, 3), 1e20))


def test_a_perturbed_scale_is_refused() -> None:
    model = Quantized()
    net = bl.capture(model, torch.zeros(2, 3))
    scale = {"scale": bl.Linf(torch.full((3,), 0.1), 0.01)}
    with pytest.raises(bl.UnsupportedOperator, match="scale or zero point is perturbed"):
        net.bounds(torch.zeros(2, 3), perturb=scale)


def test_remainders_of_perturbed_whole_numbers_are_refused() -> None:
    x = torch.randn(2, 5)
    net = bl.capture(lambda x: x.argmax(1) % 3, x)
    with pytest.raises(bl.UnsupportedOperator, match="whole numbers"):
        net.bounds(bl.Linf(x, 5.0))


PLACES = torch.tensor([0.2, 0.5])
WHOLE: dict[str, Callable[[Tensor], Tensor]] = {
    "difference": lambda x: torch.bucketize(x, PLACES).diff(dim=1) * x[:, :2],
    "product": lambda x: (torch.bucketize(x, PLACES) @ torch.ones(3, 2, dtype=torch.int64)) * 0.5,
    "quotient": lambda x: x.sum(1, keepdim=True) / ((x > 0.3).sum(1, keepdim=True) + 1),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_torch_does_not_do_to_perturbed_whole_numbers_is_named(name: str) -> None:
    x = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    net = bl.capture(WHOLE[name], x)
    with pytest.raises(bl.UnsupportedOperator, match="convert them first"):
        net.bounds(bl.Linf(x, 0.2))


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "forward", "crown", "alpha-crown"])
def test_whole_numbers_beside_others(method: str) -> None:
    """Parts of a concatenation that have no slopes, and other shapes than the result."""
    x = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    weight = torch.tensor([[0.5], [-0.3], [0.7], [0.4], [-0.6], [0.2], [1.0], [2.0], [-1.0]])

    def model(x: Tensor) -> Tensor:
        return torch.cat([x, torch.bucketize(x, PLACES), x > 0.4], 1) @ weight

    region = bl.Linf(x, 0.2)
    found = bl.capture(model, x).bounds(region, method=method)
    for _ in range(50):
        y = model(region.sample())
        assert (found.lower <= y + 1e-5).all() and (y <= found.upper + 1e-5).all()
