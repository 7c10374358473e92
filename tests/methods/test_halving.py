"""A batch whose rows do not fit is halved; memory that runs out is told of."""

from __future__ import annotations

import pytest
import torch

import boundlab as bl
from tests.helpers.models import convolutions


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


def test_memory_that_ran_out_is_a_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:131] . DefaultCPUAllocator: can't allocate memory: you "
            "tried to allocate 9 bytes."
        )

    x = torch.rand(2, 2, 8, 8)
    net = bl.capture(convolutions(), x)
    monkeypatch.setattr("boundlab.net.net.run", fail)
    with pytest.raises(bl.MemoryLimit, match=r"torch\.no_grad\(\)"):
        net.bounds(bl.Linf(x, 0.05))
    with torch.no_grad(), pytest.raises(bl.MemoryLimit, match="smaller batch"):
        net.bounds(bl.Linf(x, 0.05))
