"""Small ReLU networks as mixed-integer programs, decided by HiGHS (Tjeng et al. 2019).

Every ReLU y = max(z, 0) with z in [l, u], l < 0 < u, has a number a in {0, 1}:

    y >= z,   y >= 0,   y <= u a,   y <= z - l (1 - a)

and everything between ReLUs is affine. A clause is refuted if no point satisfies all its rows. The
solver is exact up to tolerances only: rows are loosened by a margin far above them before
"infeasible" counts, and a point that it finds is replayed on the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from boundlab.graph.graph import Graph
from boundlab.methods.plan import Plan
from boundlab.rules.registry import aten

MOST_VALUES = 3000
"""Inputs and ReLUs that a program may have."""
MARGIN = 1e-5
"""By how much rows are loosened, as a share of the size of their terms: the solver's own tolerances
are 1e-7."""
TOLERANCE = 1e-7


def import_highspy() -> Any:
    """The solver, None if it is not installed: it is an extra."""
    try:
        import highspy
    except ImportError:
        return None
    return highspy


@dataclass(frozen=True, eq=False)
class Affine:
    """What a node is, of all values before it: matrix (elements, values) and constant
    (elements,)."""

    matrix: np.ndarray
    constant: np.ndarray


@dataclass(frozen=True, eq=False)
class Layer:
    """ReLUs: what enters them, and where their results stand among the values."""

    entering: Affine
    source: str
    first: int


@dataclass(frozen=True, eq=False)
class Encoding:
    """A network of ReLUs: its inputs, the results of its ReLUs one behind the other, and its
    outputs as affine functions of these values."""

    inputs: int
    layers: tuple[Layer, ...]
    outputs: Affine
    values: int


def encode(plan: Plan, shape: tuple[int, ...], constants: Mapping[str, Any]) -> Encoding | None:
    """The network behind a plan, if it is made of ReLUs and affine operators and small enough.
    shape: of one input; constants: the values of all nodes that do not depend on it."""
    graph = plan.graph
    relus = [name for name in graph.nodes if name in plan.nonlinear]
    if any(graph.nodes[name].op is not aten.relu.default for name in relus):
        return None
    (source,) = plan.sources
    sizes = {source: int(np.prod(shape))}
    reader = _Reader(graph, constants, {source: shape})
    layers, first = [], sizes[source]
    for name in relus:
        if first > MOST_VALUES:
            return None
        (entering,) = plan.calls[name].names
        affine, own = reader.affine(entering, first)
        layers.append(Layer(affine, entering, first))
        reader.shapes[name] = own
        first += len(affine.constant)
    outputs, _ = reader.affine(plan.targets[0], first)
    return Encoding(sizes[source], tuple(layers), outputs, first)


class _Reader:
    """Finds affine maps by running the graph on unit vectors. shapes: of the values before."""

    def __init__(
        self, graph: Graph, constants: Mapping[str, Any], shapes: dict[str, tuple[int, ...]]
    ) -> None:
        self.graph = graph
        self.constants = constants
        self.shapes = shapes

    @torch.no_grad()
    def affine(self, node: str, count: int) -> tuple[Affine, tuple[int, ...]]:
        """A node as a function of the first ``count`` values, and its shape."""
        rows = torch.cat([torch.zeros(1, count), torch.eye(count)]).double()
        values, first = dict(self.constants), 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            values[name] = rows[:, first : first + size].reshape(-1, *shape)
            first += size
        needed = self.graph.ancestors((node,))
        found: Tensor = self.graph.run(values, needed.__contains__)[node]
        flat = found.flatten(1)
        matrix = (flat[1:] - flat[0]).T.numpy()
        return Affine(matrix, flat[0].numpy()), tuple(found.shape[1:])


@dataclass(frozen=True, eq=False)
class Entering:
    """What enters the ReLUs of a layer: its ends, and whether it was split at 0: all
    (elements,)."""

    lower: np.ndarray
    upper: np.ndarray
    split: np.ndarray


@dataclass(frozen=True, eq=False)
class Box:
    """Ends of the inputs (in,), and what enters each layer."""

    lower: np.ndarray
    upper: np.ndarray
    layers: tuple[Entering, ...]


def solve(
    encoding: Encoding, box: Box, rows: np.ndarray, seconds: float
) -> tuple[str, np.ndarray | None]:
    """Whether a point of the box has ``rows @ outputs <= 0`` in every row (rows, outputs):
    "infeasible", "feasible" with an input (in,), or "unknown"."""
    highspy = import_highspy()
    program = _Program(highspy, encoding, box)
    for layer, entering in zip(encoding.layers, box.layers, strict=True):
        program.add_relus(layer, entering)
    program.add_rows(rows @ encoding.outputs.matrix, rows @ encoding.outputs.constant)
    return program.run(seconds)


class _Program:
    """A program that is built up. Its variables are the values, and a number for each ReLU whose
    sign is open."""

    def __init__(self, highspy: Any, encoding: Encoding, box: Box) -> None:
        self.highspy = highspy
        self.solver = highspy.Highs()
        self.inputs = encoding.inputs
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("primal_feasibility_tolerance", TOLERANCE),
            ("mip_feasibility_tolerance", TOLERANCE),
        ):
            self.solver.setOptionValue(option, value)
        lower = np.concatenate([box.lower, *(np.maximum(x.lower, 0) for x in box.layers)])
        upper = np.concatenate([box.upper, *(np.maximum(x.upper, 0) for x in box.layers)])
        self.solver.addVars(len(lower), lower, upper)
        self.size = np.maximum(np.abs(lower), np.abs(upper))

    def add_relus(self, layer: Layer, x: Entering) -> None:
        """The constraints of ReLUs."""
        infinity = self.highspy.kHighsInf
        low, up = x.lower, x.upper
        for element in range(len(low)):
            result = layer.first + element
            index, values = self._terms(layer.entering.matrix[element], result)
            constant = float(layer.entering.constant[element])
            if up[element] <= 0:
                if x.split[element]:  # W v + b <= 0; else that follows from the other constraints
                    self._add([*index[:-1]], [*-values[:-1]], -infinity, -constant)
                continue  # its result is 0 by its ends
            if low[element] >= 0:
                self.solver.addRow(constant, constant, len(index), index, values)
                continue
            self.solver.addRow(constant, infinity, len(index), index, values)  # y - W v >= b
            choice = self.solver.getNumCol()
            self.solver.addVar(0.0, 1.0)
            self.solver.changeColIntegrality(choice, self.highspy.HighsVarType.kInteger)
            self._add([result, choice], [1.0, -float(up[element])], -infinity, 0.0)
            bound = constant - float(low[element])  # y - W v - l a <= b - l
            self._add([*index, choice], [*values, -float(low[element])], -infinity, bound)

    def _terms(self, row: np.ndarray, result: int) -> tuple[np.ndarray, np.ndarray]:
        """y - W v, as places and coefficients."""
        places = np.flatnonzero(row).astype(np.int32)
        index = np.append(places, np.int32(result)).astype(np.int32)
        return index, np.append(-row[places], 1.0)

    def _add(self, index: list[int], values: list[float], low: float, up: float) -> None:
        self.solver.addRow(
            low, up, len(index), np.array(index, dtype=np.int32), np.array(values, dtype=float)
        )

    def add_rows(self, matrix: np.ndarray, constant: np.ndarray) -> None:
        """Every row must hold, loosened by the margin."""
        for row, shift in zip(matrix, constant, strict=True):
            places = np.flatnonzero(row).astype(np.int32)
            scale = float(np.abs(row) @ self.size[: len(row)]) + abs(float(shift))
            end = MARGIN * scale - float(shift)
            self._add(places.tolist(), row[places].tolist(), -self.highspy.kHighsInf, end)

    def run(self, seconds: float) -> tuple[str, np.ndarray | None]:
        self.solver.setOptionValue("time_limit", max(seconds, 0.01))
        self.solver.run()
        status = self.solver.getModelStatus()
        if status == self.highspy.HighsModelStatus.kInfeasible:
            return "infeasible", None
        solution = self.solver.getSolution()
        if solution.value_valid:
            return "feasible", np.array(solution.col_value)[: self.inputs]
        return "unknown", None
