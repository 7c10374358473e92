"""Optimised slopes: sound, never looser than crown, reproducible, and every option does what it
says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from tests.helpers.contract import assert_inside, check_sound, members
from tests.networks import NETWORKS


def relu_network(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    ).to(dtype)


@pytest.fixture
def asked() -> tuple[nn.Module, bl.Net, bl.Linf, Tensor]:
    model = relu_network()
    x = torch.rand(3, 5, generator=torch.Generator().manual_seed(1))
    return model, bl.capture(model, x), bl.Linf(x, 0.3), torch.tensor([0, 1, 2])


def test_tighter_than_crown(asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor]) -> None:
    model, net, region, labels = asked
    crown, alpha = net.bounds(region), net.bounds(region, method="alpha-crown")
    assert (alpha.lower >= crown.lower).all() and (alpha.upper <= crown.upper).all()
    assert alpha.width.mean() < 0.95 * crown.width.mean()
    for point in members(region, 50, seed=0):
        assert_inside(model(point), alpha.lower.detach(), alpha.upper.detach(), "alpha-crown")
    assert (net.margins(region, labels, method="alpha-crown") >= net.margins(region, labels)).all()


def test_more_steps_are_better(asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor]) -> None:
    _, net, region, labels = asked
    with torch.no_grad():
        found = [
            net.margins(
                region, labels, method="alpha-crown", alpha=bl.Alpha(iterations=n, inner=4)
            ).mean()
            for n in (0, 2, 20)
        ]
        assert found[0] < found[1] < found[2]
        inner = [
            net.margins(region, labels, method="alpha-crown", alpha=bl.Alpha(inner=n)).mean()
            for n in (0, 1, 8)
        ]
    assert inner[0] < inner[1] < inner[2]


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "leaky_relu": lambda h: F.leaky_relu(h, 0.2),
    "steep": lambda h: F.leaky_relu(h, 2.0), "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "exp": torch.exp, "softplus": F.softplus, "sinh": torch.sinh, "square": torch.square,
    "gelu": F.gelu, "relu6": lambda h: F.relu6(4 * h), "abs": torch.abs,
    "product": lambda h: h * h.flip(-1), "softmax": lambda h: torch.softmax(3 * h, -1),
    "maximum": lambda h: h.unflatten(-1, (4, 4)).amax(-1),
    "matrix product": lambda h: (h.unflatten(-1, (4, 4)) @ h.unflatten(-1, (4, 4))).flatten(-2),
    "reciprocal": lambda h: 1 / (h + 8),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_family(name: str, dtype: torch.dtype) -> None:
    """Sound and inside crown for every kind of relaxation with a free number, which gains something
    in the mean."""
    torch.manual_seed(0)
    first, second = nn.Linear(5, 16).to(dtype), nn.Linear(16, 16).to(dtype)
    act = ACTIVATIONS[name]
    last = nn.Linear(act(torch.zeros(1, 16)).shape[-1], 3).to(dtype)
    modules = nn.ModuleList([first, second, last])

    def model(x: Tensor) -> Tensor:
        return modules[2](act(modules[1](torch.relu(modules[0](x)))))

    x = torch.rand(2, 5, dtype=dtype)
    with torch.no_grad():
        found = check_sound(model, (bl.Linf(x, 0.3),), count=30, methods=("crown", "alpha-crown"))
    assert found["alpha-crown"].width.mean() < found["crown"].width.mean()


@pytest.mark.parametrize("norm", [bl.Linf, bl.L2, bl.L1])
def test_convolutions(norm: type[bl.Linf]) -> None:
    """Windows with numbers of their own for every row."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    with torch.no_grad():
        found = check_sound(
            model, (norm(torch.rand(2, 2, 8, 8), 0.2),), count=20, methods=("crown", "alpha-crown")
        )
    assert found["alpha-crown"].width.mean() < found["crown"].width.mean()


def test_a_sample_does_not_depend_on_its_batch(
    asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor],
) -> None:
    _, net, region, _ = asked
    assert region.x is not None
    together = net.bounds(region, method="alpha-crown")
    for i in range(3):
        alone = net.bounds(bl.Linf(region.x[i : i + 1], 0.3), method="alpha-crown")
        torch.testing.assert_close(alone.lower[0], together.lower[i])
        torch.testing.assert_close(alone.upper[0], together.upper[i])


def test_a_specification_is_asked_in_one_piece_or_many() -> None:
    """In double precision: a gradient that is nearly zero takes its sign from rounding errors."""
    x = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    net, spec = (
        bl.capture(relu_network(dtype=torch.float64), x),
        torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)),
    )
    ask = lambda memory: net.bounds(bl.Linf(x, 0.3), spec=spec, method="alpha-crown", memory=memory)
    whole, parts = ask(None), ask(8 * 8 * 100)
    torch.testing.assert_close(whole.lower, parts.lower)
    torch.testing.assert_close(whole.upper, parts.upper)


def test_a_warm_start_goes_on_where_the_first_ended(
    asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor],
) -> None:
    _, net, region, _ = asked
    short = bl.Alpha(iterations=5, inner=3)
    first = net.bounds(region, method="alpha-crown", alpha=short)
    cold = net.bounds(region, method="alpha-crown", alpha=bl.Alpha(iterations=0, inner=3))
    warm = net.bounds(
        region, method="alpha-crown", alpha=bl.Alpha(iterations=0, inner=3), slopes=first.slopes
    )
    torch.testing.assert_close(warm.lower, first.lower)
    torch.testing.assert_close(warm.upper, first.upper)
    assert warm.width.mean() < cold.width.mean()
    with pytest.raises(bl.ArgumentError, match="earlier result"):
        net.bounds(bl.Linf(torch.rand(2, 5), 0.3), method="alpha-crown", slopes=first.slopes)


def test_numbers_outside_of_their_range_are_not_trusted(
    asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor],
) -> None:
    model, net, region, _ = asked
    none = bl.Alpha(iterations=0, inner=0)
    honest = net.bounds(region, method="alpha-crown", alpha=none)
    wild = {
        key: {name: 50 * tensor - 20 for name, tensor in numbers.items()}
        for key, numbers in honest.slopes.items()
    }
    bounds = net.bounds(region, method="alpha-crown", alpha=none, slopes=wild)
    for point in members(region, 50, seed=0):
        assert_inside(model(point), bounds.lower.detach(), bounds.upper.detach(), "wild numbers")


def test_sides(asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor]) -> None:
    _, net, region, _ = asked
    crown = net.bounds(region)
    both = net.bounds(region, method="alpha-crown")
    lower = net.bounds(region, method="alpha-crown", alpha=bl.Alpha(sides="lower"))
    torch.testing.assert_close(lower.lower, both.lower)
    assert (lower.upper >= both.upper).all() and (lower.upper > both.upper).any()
    assert (lower.upper <= crown.upper).all()  # intermediate bounds are optimised all the same
    one = net.bounds(region, method="alpha-crown", sides="upper")
    torch.testing.assert_close(one.upper, both.upper)
    assert torch.isneginf(one.lower).all()


def test_share_and_stop(asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor]) -> None:
    _, net, region, labels = asked
    crown = net.bounds(region)
    shared = net.bounds(region, method="alpha-crown", alpha=bl.Alpha(share=True))
    assert shared.width.mean() < crown.width.mean()
    with torch.no_grad():
        easy = net.margins(
            region, labels, method="alpha-crown", alpha=bl.Alpha(stop_when=-1e6, inner=0)
        )
    # everything is high enough at once
    torch.testing.assert_close(easy, net.margins(region, labels).detach())


def test_differentiable_by_the_parameters(asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor]) -> None:
    model, net, region, _ = asked
    bounds = net.bounds(region, method="alpha-crown", alpha=bl.Alpha(iterations=2))
    bounds.lower.sum().backward()
    assert all(
        p.grad is not None and torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0
        for p in model.parameters()
    )


def test_no_gradient_is_left_behind(asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor]) -> None:
    model, net, region, _ = asked
    with torch.no_grad():
        bounds = net.bounds(region, method="alpha-crown")
    assert not bounds.lower.requires_grad
    assert all(p.grad is None for p in model.parameters())


def test_an_affine_model_has_nothing_to_optimise() -> None:
    x = torch.rand(2, 3)
    net = bl.capture(nn.Linear(3, 2), x)
    torch.testing.assert_close(
        net.bounds(bl.Linf(x, 0.1), method="alpha-crown").lower, net.bounds(bl.Linf(x, 0.1)).lower
    )


@pytest.mark.parametrize("name", ["resnet-basic", "lstm", "several"])
def test_networks(name: str) -> None:
    case = NETWORKS[name]
    with torch.no_grad():
        check_sound(
            case.model(),
            tuple(bl.Linf(x, case.eps) for x in case.inputs(2)),
            count=6,
            methods=("crown", "alpha-crown"),
        )


def test_a_model_without_a_batch() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(0), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 3)
    )
    x = torch.rand(2, 6, 6)
    net, region = bl.capture(model, x, batched=False), bl.Linf(x, 0.05)
    assert not net.graph.batched
    with torch.no_grad():
        check_sound(model, (region,), count=6, methods=("crown", "alpha-crown"), net=net)
        crown, alpha = net.bounds(region), net.bounds(region, method="alpha-crown")
    assert alpha.lower.shape == (3,)
    assert (alpha.lower >= crown.lower).all() and (alpha.upper <= crown.upper).all()
    assert alpha.width.mean() < 0.99 * crown.width.mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": -1}, "whole number"),
        ({"iterations": 2.5}, "whole number"),
        ({"inner": True}, "whole number"),
        ({"lr": 0}, "0 < lr"),
        ({"lr": "fast"}, "0 < lr"),
        ({"sides": "left"}, "'both'"),
        ({"stop_when": "soon"}, "high enough"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(bl.ArgumentError, match=message):
        bl.Alpha(**options)  # type: ignore[arg-type]


def test_options_belong_to_the_method(asked: tuple[nn.Module, bl.Net, bl.Linf, Tensor]) -> None:
    _, net, region, _ = asked
    with pytest.raises(bl.ArgumentError, match="alpha-crown"):
        net.bounds(region, alpha=bl.Alpha())
    with pytest.raises(bl.ArgumentError, match=r"bl\.Alpha"):
        net.bounds(region, method="alpha-crown", alpha={"iterations": 3})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        bl.Alpha(steps=3)  # type: ignore[call-arg]
