"""Sums of weighted distances in blocks are those of the differences as a whole."""

from __future__ import annotations

import pytest
import torch

from boundlab.kernels import absolute_dots as module
from boundlab.kernels.absolute_dots import absolute_dots
from boundlab.kernels.blocks import BLOCK
from tests.helpers.watching import watch


@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_absolute_dots_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BLOCK, "cpu", block)
    generator = torch.Generator().manual_seed(0)
    rows, others, weights = (
        torch.randn(n, 11, dtype=torch.float64, generator=generator).requires_grad_()
        for n in (4, 3, 3)
    )
    expected = ((rows[:, None] - others).abs() * weights).sum(2)
    blocks = watch(monkeypatch, module, "_blocks")
    found = absolute_dots(rows, others, weights)
    assert len(blocks[0]) == (11 if block <= 7 else 1)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    for got, want in zip(
        torch.autograd.grad(found, (rows, others, weights), upstream),
        torch.autograd.grad(expected, (rows, others, weights), upstream),
        strict=True,
    ):
        torch.testing.assert_close(got, want)
    assert absolute_dots(rows[:0], others, weights).shape == (0, 3)
