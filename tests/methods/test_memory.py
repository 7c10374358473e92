"""A memory budget changes the size of the parts that are worked on, and nothing else."""

from __future__ import annotations

import pytest
import torch

import boundlab as bl
from boundlab.methods import alpha as alpha_module
from boundlab.methods import memory, refine
from tests.helpers.contract import assert_within, slack
from tests.helpers.models import convolutions
from tests.helpers.watching import watch


@pytest.mark.parametrize("method", ["crown", "crown-ibp", "forward+backward", "alpha-crown"])
def test_the_same_bounds_in_many_parts(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(2, 2, 8, 8)
    net, region = bl.capture(convolutions(), x), bl.Linf(x, 0.05)
    alpha = bl.Alpha(iterations=2, inner=1) if method == "alpha-crown" else None
    modules = (refine, alpha_module) if alpha else (refine,)
    counts = [watch(monkeypatch, module, "rows_at_once") for module in modules]
    with torch.no_grad():
        whole = net.bounds(region, method=method, alpha=alpha)
        for count in counts:
            assert min(count) > 1000
            count.clear()
        parts = net.bounds(region, method=method, alpha=alpha, memory="100 KiB")
    assert all(max(count) <= 5 for count in counts)
    factor = 100 if alpha else 10
    assert_within((whole.lower - parts.lower).abs(), factor * slack(whole.lower), "lower: apart")
    assert_within((whole.upper - parts.upper).abs(), factor * slack(whole.upper), "upper: apart")


def test_margins_and_linear_bounds_take_a_budget() -> None:
    x = torch.rand(2, 2, 8, 8)
    net, region, labels = bl.capture(convolutions(), x), bl.Linf(x, 0.05), torch.tensor([1, 2])
    torch.testing.assert_close(
        net.margins(region, labels), net.margins(region, labels, memory=100_000)
    )
    torch.testing.assert_close(
        net.linear_bounds(region).lower_b, net.linear_bounds(region, memory=100_000).lower_b
    )


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
    x = torch.rand(2, 2, 8, 8)
    net, region = bl.capture(convolutions(), x), bl.Linf(x, 0.05)
    net.bounds(region, memory=100_000)  # so little may always be kept
    monkeypatch.setattr(memory, "HARMLESS", 0)
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
