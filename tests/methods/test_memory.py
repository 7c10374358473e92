"""A memory budget changes the size of the parts that are worked on, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.methods import backward, memory, refine
from boundlab.relaxations.interval import Interval
from tests.helpers.contract import slack


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    first = [
        nn.Conv2d(2, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
    ]
    return nn.Sequential(*first, nn.Linear(6 * 64, 20), nn.ReLU(), nn.Linear(20, 4))


@pytest.mark.parametrize("method", ["crown", "crown-ibp", "forward+backward", "alpha-crown"])
def test_the_same_bounds_in_many_parts(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(2, 2, 8, 8)
    net, region = bl.capture(convolutions(), x), bl.Linf(x, 0.05)
    alpha = bl.Alpha(iterations=2, inner=1) if method == "alpha-crown" else None
    counts: list[int] = []
    original = memory.rows_at_once

    def counted(analysis: memory.Analysis, target: str) -> int:
        counts.append(original(analysis, target))
        return counts[-1]

    for module in ("refine", "engine", "alpha"):
        monkeypatch.setattr(f"boundlab.methods.{module}.rows_at_once", counted)
    with torch.no_grad():
        whole = net.bounds(region, method=method, alpha=alpha)
        assert min(counts) > 1000
        counts.clear()
        parts = net.bounds(region, method=method, alpha=alpha, memory="100 KiB")
    assert max(counts) <= 5
    room = 100 * slack(whole.lower) if alpha else 10 * slack(whole.lower)
    assert (whole.lower - parts.lower).abs().max() <= room and (
        whole.upper - parts.upper
    ).abs().max() <= room


def test_margins_and_linear_bounds_take_a_budget() -> None:
    x = torch.rand(2, 2, 8, 8)
    net, region, labels = bl.capture(convolutions(), x), bl.Linf(x, 0.05), torch.tensor([1, 2])
    torch.testing.assert_close(
        net.margins(region, labels), net.margins(region, labels, memory=100_000)
    )
    torch.testing.assert_close(
        net.linear_bounds(region).lower_b, net.linear_bounds(region, memory=100_000).lower_b
    )


@pytest.mark.parametrize(
    "eps",
    [
        0.05,
        torch.tensor([0.05, 0.02, 0.01]),
        torch.full((3, 2, 8, 8), 0.03),
        torch.full((1, 2, 8, 8), 0.03),
    ],
)
def test_samples_one_after_the_other_where_a_row_of_all_does_not_fit(
    eps: float | torch.Tensor,
) -> None:
    x, labels, spec = torch.rand(3, 2, 8, 8), torch.tensor([1, 2, 0]), torch.randn(3, 2, 4)
    net, region = bl.capture(convolutions(), x), bl.Linf(x, eps)
    budget = 8 * 4 * 6 * 64 * 2  # for rows of two samples
    with torch.no_grad():
        for rows in (None, spec, spec[0]):
            whole, parts = (
                net.bounds(region, spec=rows),
                net.bounds(region, spec=rows, memory=budget),
            )
            torch.testing.assert_close(parts.lower, whole.lower)
            torch.testing.assert_close(parts.upper, whole.upper)
        torch.testing.assert_close(
            net.margins(region, labels, memory=budget), net.margins(region, labels)
        )
    with pytest.raises(bl.MemoryLimit):  # what is kept of all nodes is not put together again
        net.bounds(region, memory=budget, intermediates=True)


def test_not_even_one_row_fits() -> None:
    x = torch.rand(2, 2, 8, 8)
    net = bl.capture(convolutions(), x)
    with pytest.raises(bl.MemoryLimit, match=r"aten\.\w+ \(module '\d'.*12 KiB.*smaller batch"):
        net.bounds(bl.Linf(x, 0.05), memory="4 KiB")
    with pytest.raises(MemoryError):
        net.bounds(bl.Linf(x, 0.05), memory=1000)


def test_what_gradients_keep_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that fit are of no use if autograd keeps all of them: refused before memory runs out,
    with what helps."""
    monkeypatch.setattr(memory, "HARMLESS", 0)
    x = torch.rand(2, 2, 8, 8)
    net, region = bl.capture(convolutions(), x), bl.Linf(x, 0.05)
    with pytest.raises(
        bl.MemoryLimit,
        match=(
            r"gradients .* budget is 97\.7 "
            r"KiB.*torch\.no_grad\(\)"
        ),
    ):
        net.bounds(region, memory=100_000)
    with torch.no_grad():
        tight = net.bounds(region, memory=100_000)
    torch.testing.assert_close(net.bounds(region, memory="1 GiB").lower, tight.lower)


def test_memory_that_ran_out_is_a_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:131] . DefaultCPUAllocator: can't allocate memory: you "
            "tried to allocate 9 bytes."
        )

    x = torch.rand(2, 2, 8, 8)
    net = bl.capture(convolutions(), x)
    monkeypatch.setattr("boundlab.net.analyse", fail)
    with pytest.raises(bl.MemoryLimit, match=r"torch\.no_grad\(\)"):
        net.bounds(bl.Linf(x, 0.05))
    with torch.no_grad(), pytest.raises(bl.MemoryLimit, match="smaller batch"):
        net.bounds(bl.Linf(x, 0.05))


@pytest.mark.parametrize("budget", ["2 GB", "much", 0, -5, True, "-1 GiB", 2.5])
def test_wrong_budgets(budget: object) -> None:
    x = torch.rand(2, 2, 8, 8)
    with pytest.raises(bl.ArgumentError, match="memory must be"):
        bl.capture(convolutions(), x).bounds(bl.Linf(x, 0.05), memory=budget)  # type: ignore[arg-type]


def test_texts() -> None:
    cpu = torch.device("cpu")
    assert memory.in_bytes("2 GiB", cpu) == 2 << 30
    assert memory.in_bytes("1.5MiB", cpu) == 3 << 19
    assert memory.in_bytes(123, cpu) == 123
    assert memory.in_bytes(None, cpu) == pytest.approx(memory.free_memory(cpu) / 2, rel=0.5)


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
    for budget in budgets:
        torch.testing.assert_close(ask(x, eps, f"{budget} KiB"), whole)
    for i in range(len(x)):
        torch.testing.assert_close(
            ask(x[i : i + 1], eps[i : i + 1]), [end[i : i + 1] for end in whole]
        )


@pytest.mark.parametrize(
    ("budget", "count", "sizes"),
    [
        ("1 GiB", 9, [9]),
        ("1 GiB", 30, [8, 8, 8, 6]),
        ("40 KiB", 9, [3, 3, 3]),
        ("33 KiB", 9, [2, 2, 2, 2, 1]),
    ],
)
def test_rows_of_outputs_come_in_parts_of_one_size(
    budget: str, count: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are fast, somewhat more to spare a part, never more than fit."""
    monkeypatch.setattr(memory, "SPEED", 8 * 400)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 200), nn.ReLU(), nn.Linear(200, 30))
    x = torch.rand(2, 3)
    net, seen, propagate_backward = bl.capture(model, x), [], backward.propagate_backward

    def watched(
        analysis: object, target: str, rows: torch.Tensor, *rest: object, **options: object
    ) -> object:
        seen.append(len(rows))
        return propagate_backward(analysis, target, rows, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(backward, "propagate_backward", watched)
    with torch.no_grad():
        net.bounds(
            bl.Linf(x, 0.1),
            method="crown-ibp",
            spec=torch.eye(30)[:count],
            sides="lower",
            memory=budget,
        )
    assert seen == sizes
