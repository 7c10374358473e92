"""Maxima and max pooling, beyond the table of operators (tests/operator_cases/reductions.py)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import boundlab as bl
from tests.helpers.contract import check_sound


def test_padding_of_a_maximum_costs_nothing() -> None:
    """The best entry of a window that reaches into the padding bounds it exactly."""
    x = torch.tensor([[[2.5, 0.5, 0.5, 0.5]]])
    lines = bl.capture(nn.MaxPool1d(3, 2, 1), x).linear_bounds(bl.Linf(x, 0.5))
    (matrix,) = lines.upper_A.values()
    assert matrix[0, 0, 0, 0].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_windows_into_the_padding_leave_no_domain() -> None:
    """What a window sees outside of a node is nothing, not a zero whose logarithm is an error."""
    torch.manual_seed(0)
    first, second, last = (
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Conv2d(3, 3, 3, padding=1),
        nn.Linear(192, 2),
    )
    parts = nn.ModuleList([first, second, last])

    def model(x: Tensor) -> Tensor:
        inner = torch.log(torch.sigmoid(parts[0](x)) + 0.5) + 1 / (parts[0](x) ** 2 + 1)
        return parts[2](torch.relu(parts[1](inner)).flatten(1))

    with torch.no_grad():
        check_sound(
            model,
            (bl.Linf(torch.rand(2, 1, 8, 8), 0.1),),
            count=10,
            methods=("crown", "alpha-crown"),
        )
