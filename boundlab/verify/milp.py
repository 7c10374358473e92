"""Small ReLU networks as mixed-integer programs, decided by HiGHS (Tjeng et al. 2019).

Every ReLU y = max(z, 0) with z in [l, u], l < 0 < u, has a number a in {0, 1}:

    y >= z,   y >= 0,   y <= u a,   y <= z - l (1 - a)

and everything between ReLUs is affine. A clause is refuted if no point satisfies all its rows. The
solver is exact up to tolerances only, and these are absolute: it takes 1e-7 for nothing, and leaves
out coefficients below 1e-9. So its variables are shares d of the ranges of values, v = centre +
radius d, rows are divided by the size of their terms, and what must be left out of a row loosens
it. The rows of a clause are loosened by a margin far above the tolerances before "infeasible"
counts, and a point that the solver finds is replayed on the model.
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
MARGIN, LEAST_MARGIN = 1e-5, 1e-6
"""By how much rows are loosened, as a share of the size of their terms in a domain, and in the
whole region: the solver's own tolerances are 1e-7."""
TOLERANCE = 1e-7
SMALL = 2e-9
"""Share of the terms of a row up to which a coefficient is left out."""
ROOM = 1e-11
"""By how much intervals are taken for wider, as a share of the terms that they are sums of."""
LEAST_RADIUS = 1e-4
"""Share of its centre that the radius of a value is at least: what sums round off is relative to
the values, wherever they are centred."""
Ends = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Lower and upper ends of nodes, flat (elements,)."""


def import_highspy() -> Any:
    """The solver, None if it is not installed: it is an extra."""
    try:
        import highspy
    except ImportError:
        return None
    return highspy


@dataclass(frozen=True, eq=False)
class Affine:
    """What a node is, of the shares of all values before it: matrix (elements, values) and constant
    (elements,)."""

    matrix: np.ndarray
    constant: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """The size of the terms of each element: (elements,)."""
        found: np.ndarray = np.abs(self.matrix).sum(1) + np.abs(self.constant)
        return found


@dataclass(frozen=True, eq=False)
class Layer:
    """ReLUs: what enters them, and where their results stand among the values."""

    entering: Affine
    source: str
    first: int


@dataclass(frozen=True, eq=False)
class Encoding:
    """A network of ReLUs: its inputs, the results of its ReLUs one behind the other, and its
    outputs as affine functions of these values. centre and radius: the units of values,
    (values,)."""

    inputs: int
    layers: tuple[Layer, ...]
    outputs: Affine
    centre: np.ndarray
    radius: np.ndarray

    def shares(self, values: np.ndarray) -> np.ndarray:
        """Values in their units; 0 for those without any."""
        found: np.ndarray = (values - self.centre) / np.where(self.radius > 0, self.radius, np.inf)
        return found


def encode(
    plan: Plan, shape: tuple[int, ...], constants: Mapping[str, Any], ends: Ends
) -> Encoding | None:
    """The network behind a plan, if it is made of ReLUs and affine operators and small enough.
    shape: of one input; constants: the values of all nodes that do not depend on it; ends: of the
    inputs and of what enters ReLUs, over all that will be asked."""
    graph = plan.graph
    relus = [name for name in graph.nodes if name in plan.nonlinear]
    if any(graph.nodes[name].op is not aten.relu.default for name in relus):
        return None
    (source,) = plan.sources
    before = [plan.calls[name].names[0] for name in relus]
    if not all(graph.nodes[name].layout.plain for name in (source, *before, *relus)):
        return None  # samples that do not come first
    count = sum(len(ends[name][0]) for name in (source, *before))
    if count > MOST_VALUES or not all(np.isfinite(ends[name]).all() for name in (source, *before)):
        return None
    reader = _Reader(graph, constants, count)
    reader.add(source, shape, *ends[source], np.zeros(len(ends[source][0])))
    layers = []
    for name, entering in zip(relus, before, strict=True):
        affine, own = reader.affine(entering)
        layers.append(Layer(affine, entering, reader.known))
        low, up = (np.maximum(end, 0) for end in ends[entering])
        reader.add(name, own, low, up, ROOM * affine.size)
    outputs, _ = reader.affine(plan.targets[0])
    inputs = len(ends[source][0])
    return Encoding(inputs, tuple(layers), outputs, reader.centre, reader.radius)


class _Reader:
    """Finds affine maps by running the graph with one value after the other at the end of its
    range. shapes: of the values before; known: how many these are."""

    def __init__(self, graph: Graph, constants: Mapping[str, Any], count: int) -> None:
        self.graph = graph
        self.constants = constants
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.known = 0
        self.centre, self.radius = np.zeros(count), np.zeros(count)

    def add(
        self, name: str, shape: tuple[int, ...], low: np.ndarray, up: np.ndarray, least: np.ndarray
    ) -> None:
        """Values between two ends, whose radius is at least as given."""
        self.shapes[name] = shape
        own = slice(self.known, self.known + len(low))
        centre = low / 2 + up / 2
        self.centre[own] = centre
        least = np.maximum(least, LEAST_RADIUS * np.abs(centre))
        self.radius[own] = np.maximum(up / 2 - low / 2, least)
        self.known = own.stop

    @torch.no_grad()
    def affine(self, node: str) -> tuple[Affine, tuple[int, ...]]:
        """A node as a function of the values so far, and its shape."""
        centre, radius = (torch.from_numpy(x[: self.known]) for x in (self.centre, self.radius))
        rows = centre + torch.cat([torch.zeros(1, self.known).double(), torch.diag(radius)])
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

    def wider(self, room: np.ndarray) -> Entering:
        return Entering(self.lower - room, self.upper + room, self.split)


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
    found, shares = program.run(seconds)
    if shares is None:
        return found, None
    inputs = slice(encoding.inputs)
    point = encoding.centre[inputs] + encoding.radius[inputs] * shares[inputs]
    return found, np.clip(point, box.lower, box.upper)


class _Program:
    """A program that is built up. Its variables are the shares of values, and a number for each
    ReLU whose sign is open. middle, reach: of the ranges of variables, as far as there are any."""

    def __init__(self, highspy: Any, encoding: Encoding, box: Box) -> None:
        self.highspy = highspy
        self.encoding = encoding
        self.rows: list[tuple[np.ndarray, np.ndarray, float, float]] = []
        """Places, coefficients and ends of rows."""
        results = [
            _result_ends(layer, x) for layer, x in zip(encoding.layers, box.layers, strict=True)
        ]
        lower = np.concatenate([box.lower, *(low for low, _ in results)])
        upper = np.concatenate([box.upper, *(up for _, up in results)])
        self.choices = 0
        self.lower, self.upper = encoding.shares(lower), encoding.shares(upper)
        choice = np.full(len(lower), 0.5)
        self.middle = np.append(self.lower / 2 + self.upper / 2, choice)
        self.reach = np.append(self.upper / 2 - self.lower / 2, choice)

    def add_relus(self, layer: Layer, x: Entering) -> None:
        """The constraints of ReLUs."""
        infinity = self.highspy.kHighsInf
        wider = x.wider(ROOM * layer.entering.size)
        for element in range(len(x.lower)):
            place = layer.first + element
            index, values = self._terms(layer.entering.matrix[element], place)
            constant = float(layer.entering.constant[element])
            shift = constant - float(self.encoding.centre[place])
            if x.upper[element] <= 0:
                if x.split[element]:  # W v + b <= 0; else that follows from the other constraints
                    self._add(index[:-1], -values[:-1], -infinity, -constant)
                continue  # its result is 0 by its ends
            if x.lower[element] >= 0:
                self._add(index, values, shift, shift)
                continue
            self._add(index, values, shift, infinity)  # y - W v >= b
            low, up = float(wider.lower[element]), float(wider.upper[element])
            choice = len(self.lower) + self.choices
            self.choices += 1
            own = np.array([place, choice])
            self._add(own, np.array([values[-1], -up]), -infinity, shift - constant)  # y <= u a
            # y - W v - l a <= b - l
            self._add(np.append(index, choice), np.append(values, -low), -infinity, shift - low)

    def _terms(self, row: np.ndarray, place: int) -> tuple[np.ndarray, np.ndarray]:
        """y - W v less the constants, as places and coefficients."""
        places = np.flatnonzero(row)
        return np.append(places, place), np.append(-row[places], self.encoding.radius[place])

    def _add(self, index: np.ndarray, values: np.ndarray, low: float, up: float) -> None:
        """A row divided by the size of its terms. Terms that hardly move, or that the solver would
        leave out, are left out, and loosen it."""
        ends = [abs(end) for end in (low, up) if np.isfinite(end)]
        scale = float(np.abs(values).sum() + max(ends)) or 1.0
        large = np.abs(values) * np.minimum(self.reach[index], 1) > SMALL * scale
        rest = float(values[~large] @ self.middle[index[~large]])
        room = float(np.abs(values[~large]) @ self.reach[index[~large]])
        low, up = (low - rest - room) / scale, (up - rest + room) / scale
        self.rows.append((index[large], values[large] / scale, low, up))

    def add_rows(self, matrix: np.ndarray, constant: np.ndarray) -> None:
        """Every row must hold, loosened by the margin."""
        middle, reach = (part[: len(self.lower)] for part in (self.middle, self.reach))
        for row, shift in zip(matrix, constant, strict=True):
            moving = float(np.abs(row) @ reach + abs(row @ middle + shift))
            whole = float(np.abs(row).sum() + abs(shift))
            room = max(MARGIN * moving, LEAST_MARGIN * whole)
            end = room - float(shift)
            self._add(np.arange(len(row)), row, -self.highspy.kHighsInf, end)

    def run(self, seconds: float) -> tuple[str, np.ndarray | None]:
        """What the solver says within so many seconds, and the shares of values that it found."""
        solver = self._solver()
        solver.setOptionValue("time_limit", max(seconds, 0.01))
        solver.run()
        status = solver.getModelStatus()
        if status == self.highspy.HighsModelStatus.kInfeasible:
            return "infeasible", None
        solution = solver.getSolution()
        if solution.value_valid:
            return "feasible", np.array(solution.col_value)
        return "unknown", None

    def _solver(self) -> Any:
        """The solver with the program as it is."""
        solver = self.highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("primal_feasibility_tolerance", TOLERANCE),
            ("mip_feasibility_tolerance", TOLERANCE),
        ):
            solver.setOptionValue(option, value)
        count = len(self.lower)
        zeros, ones = np.zeros(self.choices), np.ones(self.choices)
        lower, upper = np.append(self.lower, zeros), np.append(self.upper, ones)
        solver.addVars(len(lower), lower, upper)
        kinds = np.full(self.choices, int(self.highspy.HighsVarType.kInteger), dtype=np.uint8)
        places = np.arange(count, count + self.choices, dtype=np.int32)
        solver.changeColsIntegrality(self.choices, places, kinds)
        index, values, low, up = zip(*self.rows, strict=True)
        sizes = np.array([len(one) for one in index])
        starts = (np.cumsum(sizes) - sizes).astype(np.int32)
        solver.addRows(
            len(low),
            np.array(low),
            np.array(up),
            int(sizes.sum()),
            starts,
            np.concatenate(index).astype(np.int32),
            np.concatenate(values),
        )
        return solver


def _result_ends(layer: Layer, x: Entering) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the results of ReLUs. Of those that are never negative, by bounds that may round
    that off, results are what enters."""
    wider = x.wider(ROOM * layer.entering.size)
    follows = (x.lower >= 0) & ~x.split
    lower = np.where(follows, wider.lower, np.maximum(wider.lower, 0))
    return lower, np.maximum(wider.upper, 0)
