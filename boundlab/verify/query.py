"""What must be shown: that no clause of a property has an input at which all its rows hold.

A row is ``excess(x) = A y(x) + B x + c``, and holds where it is at most 0. A clause is refuted on a
set if on every part of it one of its rows is positive. Rows are stacked over all clauses of all
cases, padded to the same number by repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from boundlab.arithmetic.arithmetic import REAL, Arithmetic
from boundlab.attacks.attack import has_one_sample
from boundlab.attacks.targets import Target
from boundlab.compat.private import pytree
from boundlab.errors import ArgumentError, DomainError, UnsupportedOperator
from boundlab.net import Net, capture
from boundlab.net.problem import Problem
from boundlab.net.questions import Options
from boundlab.onnx import OnnxModel
from boundlab.onnx.batching import sample_shape
from boundlab.regions import Box, Region
from boundlab.specs.property import Case, Clause, Property
from boundlab.verify.boxes import Boxes
from boundlab.verify.rounding import (
    FLOOR,
    Rounding,
    in_double,
    looked_at,
    points_of_each,
    together,
)

Try = Callable[[Tensor, Tensor], bool]
"""Whether one of some inputs (points, in), each for a clause (points,), is a counterexample, or
another reason to end the search."""
ROOM = 4.0
"""How much more than measured the model may round."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of some clauses: outputs A (clauses, rows, out), inputs B (clauses, rows, in),
    constant c (clauses, rows), all in double precision; case: the case of each clause, (clauses,);
    slack (clauses, rows): how far a row may be below what is computed, by the rounding of the
    model."""

    outputs: Tensor
    inputs: Tensor
    constant: Tensor
    case: Tensor
    slack: Tensor

    @staticmethod
    def of(cases: Sequence[Case]) -> Rows:
        size = max(len(clause.constant) for case in cases for clause in case.clauses)
        parts = [_padded(clause, case.region, size) for case in cases for clause in case.clauses]
        number = [index for index, case in enumerate(cases) for _ in case.clauses]
        outputs, inputs, constant = (torch.stack(one) for one in zip(*parts, strict=True))
        return Rows(outputs, inputs, constant, torch.tensor(number), torch.zeros_like(constant))

    def __len__(self) -> int:
        return len(self.case)

    @property
    def speak_of_inputs(self) -> bool:
        return bool((self.inputs != 0).any())

    def spec(self) -> Tensor:
        """Coefficients (clauses, rows, columns) of what :class:`Observed` shows: what they give
        must be positive in one row of each clause, wherever the model is."""
        parts = [self.outputs, (self.constant - self.slack).unsqueeze(2)]
        if self.speak_of_inputs:
            parts.insert(1, self.inputs)
        return torch.cat(parts, 2)

    def excess(self, x: Tensor, y: Tensor, clause: Tensor) -> Tensor:
        """The rows of clauses (points,) at flat inputs and outputs: (points, rows)."""
        of_outputs = torch.einsum("pro,po->pr", self.outputs[clause], y.double())
        of_inputs = torch.einsum("pri,pi->pr", self.inputs[clause], x.double())
        return of_outputs + of_inputs + self.constant[clause]

    def moved(self, rounded: Tensor, clause: Tensor) -> Tensor:
        """How far rows move if outputs do so (points, out): (points, rows); infinite if that is not
        known."""
        found = torch.einsum("pro,po->pr", self.outputs[clause].abs(), rounded)
        return found.nan_to_num(torch.inf)

    def with_more_slack(self, moved: Tensor, clause: Tensor) -> Rows:
        """With room for rows that move so far (points, rows) at points of clauses (points,)."""
        index = clause.unsqueeze(1).expand(moved.shape)
        slack = self.slack.scatter_reduce(0, index, ROOM * moved, "amax")
        return replace(self, slack=slack)


def _padded(clause: Clause, region: Region, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """A clause with its first row repeated until there are so many."""
    index = torch.arange(size)
    index = torch.where(index < len(clause.constant), index, 0)
    inputs = clause.inputs
    if inputs is None:
        count = region.centre.numel()
        inputs = torch.zeros(len(clause.constant), count, dtype=torch.float64)
    return clause.outputs[index], inputs[index], clause.constant[index]


def nothing(points: Tensor, clause: Tensor) -> bool:
    """Points that nobody tries."""
    return False


class Observed(nn.Module):
    """A model with everything that rows speak of in one row (samples, columns): all its outputs,
    its inputs if rows speak of them, and a 1 for constants."""

    def __init__(self, model: nn.Module, inputs: bool) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs

    def forward(self, x: Tensor) -> Tensor:
        leaves = [one for one in pytree.tree_leaves(self.model(x)) if isinstance(one, Tensor)]
        columns = [one.reshape(x.shape[0], -1) for one in leaves]
        if self.inputs:
            columns.append(x.reshape(x.shape[0], -1))
        return torch.cat([*columns, torch.ones_like(columns[0][:, :1])], 1)


@dataclass(frozen=True, eq=False)
class Query:
    """A property of a model, ready to be bounded. target: the model itself; rounding: how far it
    rounds; shape: of one of its inputs; net: what is bounded, its copy in double precision unless
    bounds are proved for another format; regions: of each case; boxes: for each case, a box that
    covers it; arithmetic: that bounds are proved for."""

    target: Target
    rounding: Rounding
    shape: tuple[int, ...]
    net: Net
    rows: Rows
    regions: tuple[Region, ...]
    boxes: tuple[Box, ...]
    arithmetic: Arithmetic | None = None

    @staticmethod
    def of(model: nn.Module, prop: Property, arithmetic: Arithmetic | None = None) -> Query:
        """arithmetic: that all bounds are to be proved for; None: the exact one if what every
        operator of the model rounds is known, else none."""
        centre = prop.regions[0].centre
        if not has_one_sample(centre):
            raise ArgumentError(
                "bounds are of models that take samples in dimension 0: verify needs a region of "
                f"one sample, (1, *shape), not {tuple(centre.shape)}"
            )
        target = Target(model, centre)
        example = centre.to(target.device, target.dtype)
        if isinstance(model, OnnxModel):
            example = example.reshape(-1, *sample_shape(model.inputs[0]))
        with torch.no_grad():
            outputs = target(example).shape[1]
        cases = [case for case in prop.cases(outputs) if case.clauses]
        rows = Rows.of(cases)
        exact = in_double(model)
        regions = tuple(case.region for case in cases)
        boxes = tuple(covering(region, target.dtype) for region in regions)
        rounding = Rounding(model, exact, centre)
        if arithmetic is not None and arithmetic.executed is not None:
            net = capture(Observed(model, rows.speak_of_inputs), example)
        else:
            net = capture(Observed(exact, rows.speak_of_inputs), example.double())
            rows = measured(rows, regions, rounding)
        shape = tuple(example.shape[1:])
        if arithmetic is None and is_provable(net, boxes[0], shape, REAL):
            arithmetic = REAL
        return Query(target, rounding, shape, net, rows, regions, boxes, arithmetic)

    @property
    def movable(self) -> int:
        """How many inputs move, in the case where most do."""
        return max(int((box.upper > box.lower).sum()) for box in self.boxes)

    def problem(self) -> Problem:
        """The rows of every clause over the box of its case, as samples of one question."""
        boxes = self.first_boxes()
        box = Box(boxes.lower.reshape(-1, *self.shape), boxes.upper.reshape(-1, *self.shape))
        return self.net.problem(box, spec=self.rows.spec(), arithmetic=self.arithmetic)

    def case_problem(self, clauses: Tensor) -> Problem:
        """The rows of some clauses (numbers) over the boxes of the cases, each of which is one
        sample: what is found of its nodes holds for all its clauses."""
        own = [clauses[self.rows.case[clauses] == case] for case in range(len(self.boxes))]
        most = max(map(len, own))
        spec = self.rows.spec()
        parts = [_filled_up(spec[one].flatten(0, 1), most * spec.shape[1]) for one in own]
        lower, upper = (torch.stack(ends) for ends in self._ends())
        box = Box(lower.reshape(-1, *self.shape), upper.reshape(-1, *self.shape))
        return self.net.problem(box, spec=torch.stack(parts), arithmetic=self.arithmetic)

    def node_problem(self, node: str, case: Tensor, spec: Tensor) -> Problem:
        """Rows of a node inside, spec (samples, rows, elements), over the boxes of cases
        (samples,)."""
        lower, upper = (torch.stack(ends)[case] for ends in self._ends())
        box = Box(lower.reshape(-1, *self.shape), upper.reshape(-1, *self.shape))
        problem = self.net.problem(box, spec=spec, arithmetic=self.arithmetic)
        return replace(problem, target=node)

    def _ends(self) -> tuple[list[Tensor], list[Tensor]]:
        """The ends (in,) of the boxes of all cases."""
        lower = [box.lower.reshape(-1) for box in self.boxes]
        return lower, [box.upper.reshape(-1) for box in self.boxes]

    def first_boxes(self) -> Boxes:
        """A box for each clause."""
        lower, upper = (torch.stack(ends)[self.rows.case] for ends in self._ends())
        clause = torch.arange(len(self.rows))
        bound = torch.full((len(clause),), -torch.inf, dtype=torch.float64)
        return Boxes(lower, upper, clause, bound, upper - lower)


@torch.no_grad()
def is_provable(net: Net, box: Box, shape: Sequence[int], arithmetic: Arithmetic) -> bool:
    """Whether it is known what every operator of a network rounds, and every relaxation of it."""
    region = Box(box.lower.reshape(-1, *shape), box.upper.reshape(-1, *shape))
    try:
        answer = net.ask((region,), {}, Options("ibp", arithmetic=arithmetic))
        for name in answer.analysis.plan.rules:
            if answer.analysis.interval(name).dtype.is_floating_point:
                answer.analysis.relaxation(name)
    except UnsupportedOperator:
        return False
    except DomainError:
        pass  # of a large region: its parts may be bounded
    return True


def _filled_up(rows: Tensor, count: int) -> Tensor:
    """Rows (any number, columns) with zeros behind them until there are so many."""
    return torch.cat([rows, rows.new_zeros(count - len(rows), rows.shape[1])])


def covering(region: Region, dtype: torch.dtype) -> Box:
    """A box around a region in double precision, with what its members become when they are rounded
    to the model's type: rounding is monotone, so its ends bound them."""
    box = region.hull()
    lower, upper = box.lower.double(), box.upper.double()
    low, up = box.lower.to(dtype).double(), box.upper.to(dtype).double()
    return Box(torch.minimum(lower, low), torch.maximum(upper, up))


@torch.no_grad()
def measured(rows: Rows, regions: Sequence[Region], rounding: Rounding) -> Rows:
    """Rows with a slack of what rounding moves them where it was looked, with room to spare."""
    generator = torch.Generator().manual_seed(0)
    size = FLOOR * rows.constant.abs()
    every = torch.arange(len(rows))
    rows = rows.with_more_slack(size, every)
    points = points_of_each(len(regions))
    rounded = torch.cat(
        [
            rounding.largest(looked_at(region, points, generator))
            for region in together(regions, points)
        ]
    )
    rows = rows.with_more_slack(rows.moved(rounded[rows.case], every), every)
    if not bool(rows.slack.isfinite().all()):
        raise ArgumentError("the model's outputs are not finite on its region")
    return rows
