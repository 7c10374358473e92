"""The rows of functions of one element allow more than was measured (benchmarks/ulps.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from boundlab.arithmetic import Pointwise, Row
from boundlab.arithmetic.table import ROWS

FILE = Path(__file__).parent.parent.parent / "benchmarks" / "results" / "ulps.json"
MEASURED: dict[str, Any] = json.loads(FILE.read_text())
aten = torch.ops.aten
OTHER_NAMES: dict[str, Any] = {
    "gelu_without_onednn": aten.gelu,
    "gelu_tanh": aten.gelu,
    "div": aten.reciprocal,
    **{f"pow_{power}": aten.pow.Tensor_Scalar for power in ("2", "3", "0.5", "-1", "2.5")},
}
"""Functions that are measured under another name than that of their operator."""
MODELS = {"y without underflow": (1, 0, 0), "y and x": (1, 1, 0), "y and 1": (1, 0, 1)}
"""What an error is relative to: the value, the argument, 1. Where results underflow they may lose
as many of the smallest normal number as the row's floor says."""


def row_of(name: str) -> Row:
    return ROWS[OTHER_NAMES.get(name, getattr(aten, name, None))]


def cases() -> list[tuple[str, str]]:
    """Each function of each way that kernels are made, in single precision."""
    found = []
    for way, functions in MEASURED.items():
        if isinstance(functions, dict) and "float64" not in way:
            found += [(way, name) for name, row in functions.items() if "summary" in row]
    return found


@pytest.mark.parametrize(("way", "name"), cases())
def test_rows_allow_what_was_measured(way: str, name: str) -> None:
    summary, row = MEASURED[way][name]["summary"], row_of(name)
    if not isinstance(row, Pointwise):
        pytest.fail(f"{name} has a row of another kind")
    allowed = row.of_value, row.of_argument, row.of_one
    smallest, unit = 2.0**-126, 2.0**-24
    assert row.floor * smallest + row.of_one * unit >= summary["underflow"] * smallest
    fits = [
        all(have >= summary[model] * needs for have, needs in zip(allowed, ways, strict=True))
        for model, ways in MODELS.items()
    ]
    assert any(fits), (summary, allowed)
