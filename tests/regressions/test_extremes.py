"""Casts, overflow and extreme arguments of operators: wrong answers that attacks have found, one
test a cause, each failed before it was mended."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import boundlab as bl
from tests.helpers.contract import METHODS

_NETS: dict[Hashable, bl.Net] = {}


def _captured(key: Hashable, function: Callable[[Tensor], Tensor], example: Tensor) -> bl.Net:
    """The net of a function, captured once for all methods."""
    if key not in _NETS:
        _NETS[key] = bl.capture(function, example)
    return _NETS[key]


# -- casts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.int64])
def test_casts_that_lose_something(dtype: torch.dtype, method: str) -> None:
    model = lambda x: x.to(dtype).to(x.dtype) * 2
    x = torch.linspace(-90, 90, 64).reshape(8, 8)
    found = _captured(dtype, model, x).bounds(bl.Linf(x, 0.3), method=method)
    for share in torch.linspace(-1, 1, 41):
        value = model(x + 0.3 * share)
        assert (found.lower - 1e-4 <= value).all() and (value <= found.upper + 1e-4).all()


def test_casts_beyond_the_range_of_whole_numbers_are_refused() -> None:
    x = torch.tensor([[100.0]])
    net = bl.capture(lambda x: x.to(torch.int8).float(), x)
    with pytest.raises(bl.DomainError, match="wrap around"):
        net.bounds(bl.Linf(x, 50.0))


def test_sums_in_another_type_cast_before_they_add() -> None:
    model = lambda x: x.sum(1, dtype=torch.int64).float()
    x = torch.full((2, 3), 0.5)
    found = bl.capture(model, x).bounds(bl.Linf(x, 0.6))
    assert (found.lower <= 0).all() and (found.upper >= 3).all()


# -- numbers beyond their range --------------------------------------------------------------------


@pytest.mark.parametrize("work", ["times", "plus", "sum", "negated"])
def test_whole_numbers_wrap_around(work: str) -> None:
    """A square of 16 bits of -574 is 649 beside squares of -797 and -341 that are -21744 and
    -14791."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "times": lambda y: y * y,
        "plus": lambda y: y + 100,
        "sum": lambda y: y + y,
        "negated": lambda y: -y,
    }
    x = torch.tensor([[-128.0]])
    region = bl.Box(x, x + 8)
    net = bl.capture(lambda x: functions[work](x.to(torch.int8)).float(), x)
    if work == "plus":
        assert net.bounds(region).lower == -28
    else:
        with pytest.raises(bl.DomainError, match="wrap around"):
            net.bounds(region)
    small = net.bounds(bl.Box(torch.tensor([[-8.0]]), torch.tensor([[8.0]])))
    assert small.lower <= functions[work](torch.tensor([[3.0]])) <= small.upper


@pytest.mark.parametrize("method", ["crown", "crown-ibp", "alpha-crown", "forward+backward"])
def test_a_bound_that_overflows_says_nothing(method: str) -> None:
    lower, upper = (
        torch.full((1, 1), 1.8445492829477143e19),
        torch.full((1, 1), 1.844799531794196e19),
    )
    squared = lambda x: (x.double() * x.double()).float()
    found = bl.capture(squared, lower).bounds(bl.Box(lower, upper), method=method)
    assert found.lower <= squared(lower) <= found.upper


@pytest.mark.parametrize("function", ["softmax", "logsumexp"])
@pytest.mark.parametrize("method", ["crown", "alpha-crown", "forward"])
def test_scores_far_below_the_largest_bound_do_not_underflow(function: str, method: str) -> None:
    """The tangent of log-sum-exp was taken relative to the largest upper bound: at a centre 100
    below it exp(-100) is no normal number."""
    score = lambda x: torch.cat([x, torch.zeros_like(x)], 1)
    functions = {
        "softmax": lambda x: score(x).softmax(1)[:, :1],
        "logsumexp": lambda x: score(x).logsumexp(1, keepdim=True),
    }
    for low, up in (
        (-3.1553847789764404, 203.76866149902344),
        (-1043.16845703125, 104.51286315917969),
        (8525.9970703125, 8526.005859375),
    ):
        lower, upper = torch.full((1, 1), low), torch.full((1, 1), up)
        net = bl.capture(functions[function], lower)
        lines = net.linear_bounds(bl.Box(lower, upper))
        found = net.bounds(bl.Box(lower, upper), method=method)
        for share in torch.linspace(0, 1, 33):
            x = torch.clamp((1 - share) * lower + share * upper, lower, upper)
            value, at = functions[function](x), lines.evaluate(dict.fromkeys(lines.lower_A, x))
            room = 4e-7 * value.abs()
            assert (found.lower - room <= value).all() and (value <= found.upper + room).all()
            assert (at.lower - 1e-3 <= value).all() and (value <= at.upper + 1e-3).all()


# -- extreme arguments -----------------------------------------------------------------------------


def _three(x: Tensor) -> Tensor:
    return torch.cat([x, -x, 0.5 * x], 1).amax(1, keepdim=True)


def _pooled(x: Tensor) -> Tensor:
    return F.max_pool1d(torch.cat([x, -x, 0.5 * x], 1)[:, None], 3)[:, 0]


EXTREMES: dict[str, tuple[Callable[[Tensor], Tensor], float, float, torch.dtype]] = {
    "sin, 1e15": (torch.sin, 1e15, 1e15 + 0.5, torch.float64),
    "cos, 1e6 in single precision": (torch.cos, 1e6, 1e6 + 0.25, torch.float32),
    "acosh at 1": (torch.acosh, 1.0, 1.0 + 1e-6, torch.float32),
    "acos at 1": (torch.acos, 1.0 - 1e-6, 1.0, torch.float32),
    "asinh, 1e32": (torch.asinh, 1e32, 1.5e32, torch.float32),
    "reciprocal, 1e20": (torch.reciprocal, 1e20, 2e20, torch.float32),
    "softplus beyond what exp can": (
        lambda x: F.softplus(x, 1.0, 100.0),
        98.5,
        7196.0,
        torch.float32,
    ),
    "remainder, 9e15": (
        lambda x: torch.remainder(x, 0.7),
        -9001468635671159.0,
        -9001468635671157.0,
        torch.float64,
    ),
    "softplus at its threshold": (F.softplus, 20.0 - 1e-9, 20.0 + 1e-9, torch.float64),
    "x / 1e-39": (lambda x: x / 1e-39, 1e-20, 2e-20, torch.float32),
    "hypot, 1e20": (lambda x: torch.hypot(x, 2 * x), 1e20, 1.1e20, torch.float32),
    "hypot, 1e-25": (lambda x: torch.hypot(x, 2 * x), 1e-25, 1.1e-25, torch.float32),
    "lerp at the end": (
        lambda x: torch.lerp(x, torch.ones_like(x), 1.0),
        1e20,
        1e20,
        torch.float32,
    ),
    "lerp at the end, tensor": (
        lambda x: torch.lerp(x, torch.ones_like(x), torch.ones_like(x)),
        1e20,
        1e20,
        torch.float32,
    ),
    "remainder, 1e20": (lambda x: torch.remainder(x, 3.0), 1e20, 1e20, torch.float32),
    "a minimum of the largest numbers": (
        lambda x: torch.minimum(x, -x),
        -0.9e38,
        0.9e38,
        torch.float32,
    ),
    "a maximum of three of the largest numbers": (_three, -3.0e38, 3.2e38, torch.float32),
    "max pooling of the largest numbers": (_pooled, -3.0e38, 3.2e38, torch.float32),
    "the largest numbers": (lambda x: x * 0.5, 3.3e38, 3.4e38, torch.float32),
}


@pytest.mark.parametrize("method", ["ibp", "forward", "crown", "alpha-crown"])
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_arguments(name: str, method: str) -> None:
    function, low, up, dtype = EXTREMES[name]
    lower, upper = torch.full((1, 1), low, dtype=dtype), torch.full((1, 1), up, dtype=dtype)
    found = _captured(name, function, lower).bounds(bl.Box(lower, upper), method=method)
    for share in torch.linspace(0, 1, 65, dtype=dtype):
        value = function(torch.clamp((1 - share) * lower + share * upper, lower, upper))
        room = 8 * torch.finfo(dtype).eps * value.abs()
        assert (found.lower - room <= value).all() and (value <= found.upper + room).all(), (
            share,
            value,
            found.lower,
            found.upper,
        )


def test_a_factor_that_torch_gives_up() -> None:
    """silu(x) = x / (1 + exp(-x)) is 0 in single precision from -88.73 on, where it should be
    -2.6e-37."""
    box = bl.Box(torch.full((1, 1), -89.34821319580078), torch.full((1, 1), -87.50228118896484))
    x = torch.full((1, 1), -88.74253845214844)
    lines = bl.capture(F.silu, x).linear_bounds(box)
    found = lines.evaluate(dict.fromkeys(lines.lower_A, x))
    assert found.lower <= F.silu(x) <= found.upper


def test_a_pole_that_rounding_hides() -> None:
    x = torch.full((1, 1), 318300.5 * math.pi)
    with pytest.raises(bl.DomainError, match="poles"):
        bl.capture(torch.tan, x).bounds(bl.Linf(x, 0.05))


@pytest.mark.parametrize(
    "function", [torch.log, torch.rsqrt, torch.log2, torch.log1p, torch.acosh, torch.reciprocal]
)
def test_a_box_up_to_infinity_ends_at_the_limit(function: Callable[[Tensor], Tensor]) -> None:
    lower, upper = torch.full((1, 1), 2.0), torch.full((1, 1), math.inf)
    found = bl.capture(function, lower).bounds(bl.Box(lower, upper), method="ibp")
    ends = torch.stack([function(lower), function(upper)])
    assert torch.equal(found.lower, ends.amin(0)) and torch.equal(found.upper, ends.amax(0))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("top", [1e12, 1e30, 3e38])
def test_a_box_whose_ends_are_far_apart_keeps_the_smaller_one(top: float, method: str) -> None:
    """Centre minus radius is 0 where it should be -4e8."""
    model = lambda x: torch.round(x * 100) * 0.01
    low, up = torch.full((1, 1), -4e8), torch.full((1, 1), top)
    found = _captured("rounded", model, low).bounds(bl.Box(low, up), method=method)
    assert found.lower <= model(low)
    assert found.upper >= up


@pytest.mark.parametrize("method", METHODS)
def test_a_line_that_overflows_in_forward_mode_says_nothing(method: str) -> None:
    """x log x begins at 2.02e38 here; its lower bound was infinite."""
    model = lambda x: x * torch.log(x)
    low, up = torch.full((1, 1), 2.4100134e36), torch.full((1, 1), 7.7e36)
    found = _captured("x log x", model, low).bounds(bl.Box(low, up), method=method)
    assert found.lower <= model(low) * (1 + 1e-6)
