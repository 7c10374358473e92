"""Intermediate bounds by backward passes that end early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.methods import refine
from boundlab.relaxations.interval import Interval
from tests.helpers.windows import assert_same_bounds


def wide() -> nn.Sequential:
    layers = [layer for _ in range(4) for layer in (nn.Linear(80, 80), nn.ReLU())]
    return nn.Sequential(nn.Linear(8, 80), nn.ReLU(), *layers, nn.Linear(80, 3))


def deep() -> nn.Sequential:
    layers = [
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 3))


@pytest.mark.parametrize(
    ("make", "shape", "budgets"), [(wide, (8,), (150, 250, 700)), (deep, (2, 6, 6), (50, 80, 200))]
)
def test_what_is_settled_on_the_way_back_depends_on_neither_parts_nor_batch(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    budgets: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that a look at an earlier node settles keep the bound of that look, whichever rows are
    worked on with them."""
    torch.manual_seed(0)
    model = make().double()
    x, eps = torch.rand(4, *shape).double(), torch.tensor([0.01, 0.04, 0.1, 0.3]).double()
    net, found = bl.capture(model, x), []
    original = refine.bound_node

    def noted(*args: Any, **kwargs: Any) -> Interval:
        found.append(original(*args, **kwargs))
        return found[-1]

    def ask(centre: Tensor, radius: Tensor, memory: str | None = None) -> list[Tensor]:
        found.clear()
        with torch.no_grad():
            net.bounds(bl.Linf(centre, radius), memory=memory)
        return [end for interval in found for end in (interval.lower, interval.upper)]

    monkeypatch.setattr(refine, "bound_node", noted)
    whole = ask(x, eps)
    assert whole
    for budget in budgets:
        torch.testing.assert_close(ask(x, eps, f"{budget} KiB"), whole)
    for i in range(len(x)):
        torch.testing.assert_close(
            ask(x[i : i + 1], eps[i : i + 1]), [end[i : i + 1] for end in whole]
        )


@pytest.mark.parametrize(
    ("radii", "drops"),
    [((0.0, 1e-3, 0.05, 0.5), False), ((0.0, 1e-3, 0.01, 0.05), True)],
    ids=["one sample keeps all its rows", "rows drop out"],
)
def test_samples_with_more_and_with_less_to_do(
    radii: tuple[float, ...], drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows drop out sample by sample: a batch gives what its samples give alone."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 20),
        nn.ReLU(),
        nn.Linear(20, 3),
    ).double()
    x = torch.rand(4, 1, 8, 8, dtype=torch.float64)
    eps = torch.tensor(radii, dtype=torch.float64)
    net = bl.capture(model, x)
    seen = assert_same_bounds(net, (bl.Linf(x, eps),), monkeypatch)
    assert bool(seen["default"].dropped) == drops
    together = net.bounds(bl.Linf(x, eps))
    for i in range(4):
        alone = net.bounds(bl.Linf(x[i : i + 1], float(eps[i])))
        torch.testing.assert_close(alone.lower[0], together.lower[i])
        torch.testing.assert_close(alone.upper[0], together.upper[i])
