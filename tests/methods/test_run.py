"""What is done with the last layers, and in which parts outputs are asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from boundlab.methods import backward, memory
from boundlab.methods.plan import Plan
from boundlab.net.questions import Options


class Tail(nn.Module):
    """Operators behind the last ReLU that read every element once, or not."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.first, self.last = (
            way,
            nn.Conv2d(1, 4, 3, padding=1).double(),
            nn.Linear(4 if way == "mean" else 16, 5).double(),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        ways = {
            "pool": lambda: F.avg_pool2d(y, 4),
            "gaps": lambda: F.avg_pool2d(y, 3, 5, padding=1),
            "overlap": lambda: F.avg_pool2d(y, 6, 2),
            "mean": lambda: y.mean((2, 3)),
            "layers": lambda: (
                F.avg_pool2d(y, 4).flatten(1)
                @ torch.linspace(-1, 1, 256, dtype=y.dtype).reshape(16, 16)
            ),
        }
        return self.last(ways[self.way]().flatten(1))


@pytest.mark.parametrize("way", ["pool", "gaps", "overlap", "mean", "layers"])
def test_nothing_is_lost_where_merging_ends(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences of outputs by interval arithmetic, ending as early as allowed and as late as
    possible."""
    torch.manual_seed(0)
    model, x, labels = (
        Tail(way),
        torch.rand(3, 1, 8, 8, dtype=torch.float64),
        torch.tensor([0, 4, 2]),
    )
    region = bl.Linf(x, 0.1)
    early = bl.capture(model, x)
    found = (
        bl.robust_cross_entropy(early, region, labels, method="ibp"),
        early.margins(region, labels, method="ibp"),
    )
    analysis = early.ask((region,), {}, Options("ibp")).analysis
    assert ("linear" in " ".join(analysis.plan.tail_cut)) is False
    ends_early = len(analysis.plan.tail_cut - analysis.plan.nonlinear) > 0
    assert ends_early == (way != "overlap")
    asked: list[Plan] = []
    monkeypatch.setattr(
        Plan, "tail_cut", property(lambda plan: asked.append(plan) or plan.nonlinear)
    )
    late = bl.capture(model, x)
    torch.testing.assert_close(
        found[0], bl.robust_cross_entropy(late, region, labels, method="ibp")
    )
    assert asked
    asked.clear()
    torch.testing.assert_close(found[1], late.margins(region, labels, method="ibp"))
    assert asked


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
