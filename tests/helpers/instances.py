"""A small network, properties of it, and what a list of them leaves."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from boundlab.commands.outcomes import HEADER
from tests.helpers.onnx_files import model, node, written

BOX = """
(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real)
(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= X_1 -1)) (assert (<= X_1 1))
"""
LARGEST = 1.0 + 0.1 + 0.7
"""Of |x0| + 0.1 x1 + 0.7 over the box."""


def write_network(folder: Path) -> Path:
    """relu(x0) + relu(-x0) + 0.1 x1 + 0.7, in single precision."""
    first = np.array([[1, -1, 0], [0, 0, 1]], np.float32)
    second = np.array([[1], [1], [0.1]], np.float32)
    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("Add", ["h", "c"], ["s"]),
        node("Relu", ["s"], ["r"]),
        node("MatMul", ["r", "b"], ["z"]),
        node("Add", ["z", "d"], ["y"]),
    ]
    constants = {
        "a": first,
        "b": second,
        "c": np.array([0, 0, 5], np.float32),
        "d": np.array([0.2], np.float32),
    }
    return written(model(nodes, {"x": (1, 2)}, ["y"], constants), folder)


def write_property(folder: Path, threshold: float, name: str = "p.vnnlib") -> Path:
    """The output stays below a threshold."""
    path = folder / name
    path.write_text(f"{BOX}(assert (>= Y_0 {threshold!r}))")
    return path


def rows(output: Path) -> dict[str, list[str]]:
    """The lines of the results by the name of the property."""
    with (output / "results.csv").open(newline="") as file:
        held = list(csv.reader(file))
    assert held[0] == HEADER
    return {row[1]: row for row in held[1:]}
