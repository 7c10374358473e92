"""Coefficients of nodes that have a single number for each sample."""

from __future__ import annotations

import torch

from boundlab.graph.layout import Layout
from boundlab.relaxations.interval import Interval
from boundlab.specs.rows import Elements


def test_rows_of_single_numbers() -> None:
    value = torch.tensor([3.0, 5.0])
    elements = Elements(Layout(), value, 2)
    rows = elements.rows(torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[1.0, -1.0]]))
    assert torch.equal(rows.dot(value), torch.tensor([[3.0, -5.0]]))
    assert torch.equal(rows.over_box(Interval(value - 1, value + 1)), torch.tensor([[2.0, -6.0]]))
