"""Sums and dots over rows."""

from __future__ import annotations

import pytest
import torch

from boundlab.graph.layout import Layout
from boundlab.kernels.reductions import common
from tests.helpers.tensors import draw


def test_common_rows_and_their_gradient() -> None:
    rows = draw(4, 1, 2, 3).requires_grad_()
    pick = lambda rows: common(rows.expand(-1, 5, -1, -1))
    assert torch.equal(pick(rows), rows[:, 0])
    assert torch.autograd.gradcheck(pick, (rows,)) and torch.autograd.gradgradcheck(
        lambda rows: pick(rows) ** 2, (rows,)
    )
    shared = rows.expand(-1, 5, -1, -1)
    (gradient,) = torch.autograd.grad(common(shared).sum(), shared)
    # there once, not for every sample
    assert gradient.untyped_storage().nbytes() <= 8 * rows.numel()


@pytest.mark.parametrize(
    "shape", [(4, 1, 1), (1, 4, 1, 1), (4, 3, 5), (2, 4, 3, 5), (1, 1), (5,), ()]
)
@pytest.mark.parametrize("last", [False, True])
def test_dots_with_constants_of_all_shapes(shape: tuple[int, ...], last: bool) -> None:
    torch.manual_seed(0)
    rows, constant = torch.randn(6, 2, 4, 3, 5).double(), torch.randn(shape).double()
    given = rows.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3) if last else rows
    torch.testing.assert_close(Layout().dot(given, constant, 2), (rows * constant).sum((2, 3, 4)))
