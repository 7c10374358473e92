"""``bl.verify``: what is done in which order, until the time is up."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from boundlab.arithmetic.arithmetic import Arithmetic, find_arithmetic
from boundlab.attacks import Attack, attack
from boundlab.attacks.attack import has_one_sample
from boundlab.attacks.descent import pulled_inside
from boundlab.attacks.targets import Model, Target
from boundlab.capture.torch_export import Function
from boundlab.defaults import TIMEOUT
from boundlab.errors import ArgumentError, TimeLimit
from boundlab.methods.deadline import until
from boundlab.net import Net
from boundlab.specs.property import Property
from boundlab.verify.bound import Bounder
from boundlab.verify.boxes import Boxes
from boundlab.verify.inputs import InputSplitting
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.query import Query
from boundlab.verify.solving import Solving
from boundlab.verify.trend import rate
from boundlab.verify.verdict import HOLDS, UNKNOWN, VIOLATED, Stage, Verdict

LOGGER = logging.getLogger(__name__)
FIRST_ATTACK, SECOND_ATTACK, ATTACK_SHARE = 0.1, 0.5, 0.1
"""Seconds of the attack before all bounds, and after the first ones; the share of what was spent
between that later ones may take."""
SLICE = 2.0
"""Seconds of branch and bound before the next attack, and twice as many then."""
SOLVER_SHARE, EASY_SHARE = 0.5, 0.6
"""The time of a solver, as a share of what every other way of searching has; for programs that seem
easy, once, as a share of all that is left."""
TIGHTEN_SHARE = 0.3
"""Share of what is left that tightening may take at once."""
SOLVER_SLICE = 8.0
"""Seconds that other ways of searching must have before a solver gets a share for clauses that do
not seem easy: it begins anew each time."""
PATIENCE = 2.0
"""Splitting goes on alone if it expects to end within this many times what is left."""
FEW_INPUTS = 20
"""Inputs that move up to which they are split first; neurons if there are more."""
MANY_INPUTS = 200
"""Inputs that move above which they are not split at all."""
CANDIDATES = 5
"""Points of a round that are replayed."""


def verify(
    model: Model, prop: Property, timeout: float = TIMEOUT, arithmetic: str | None = None
) -> Verdict:
    """Decide whether a property holds.

    model: a module, callable or net of one input. timeout: seconds, after which the answer is
    "unknown" with what is known so far. arithmetic: "real", "float32" or "float64": what a proof
    must hold for, the network evaluated exactly or as executed in that precision
    (docs/floating-point.md); None: bounds are proved in real arithmetic where it is known what all
    operators round, how far the executed network rounds is measured, and a solver may help.
    """
    if not isinstance(prop, Property):
        raise ArgumentError(
            f"verify takes a property, as of bl.robust or bl.load_vnnlib, not {type(prop).__name__}"
        )
    if not timeout > 0:
        raise ArgumentError(f"timeout must be a positive number of seconds, not {timeout}")
    search = Portfolio(model, prop, time.monotonic() + timeout, find_arithmetic(arithmetic))
    try:
        search.run()
    except KeyboardInterrupt:
        search.interrupted = True
    return search.verdict()


@dataclass(frozen=True, eq=False)
class Given:
    """Boxes of inputs that a search has left open, the method by which it bounded them, and the
    slack of its rows."""

    boxes: Boxes
    method: str
    slack: Tensor


class Portfolio:
    """The stages of one verification, and what they have found."""

    def __init__(
        self, model: Model, prop: Property, deadline: float, arithmetic: Arithmetic | None = None
    ) -> None:
        self.arithmetic = arithmetic
        self.proved_in = arithmetic
        """The arithmetic of all that was proved so far."""
        self.begun = time.monotonic()
        self.deadline = deadline
        self.prop = prop
        self.model = as_module(model)
        self.stages: list[Stage] = []
        self.found: Attack | None = None
        self.proved = False
        self.interrupted = False
        self.bound = -math.inf
        self.domains = 0
        self.attacks = 0
        self.attack_seconds = FIRST_ATTACK
        self.slice = SLICE
        self.given: Given | None = None
        self.has_begun = False
        self.neurons: NeuronSplitting | None = None
        self.solving: Solving | None = None
        self.solved_easy = False
        self.doubted = False
        self.worth_tightening = True
        self.tighten_seconds = SLICE
        self.rates: dict[str, float] = {}
        """How fast a stage raised the bound when it was last at work."""

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.proved or self.found is not None or self.seconds_left <= 0

    def verdict(self) -> Verdict:
        status = UNKNOWN
        if self.found is not None:
            status = VIOLATED
        elif self.proved:
            status = HOLDS
        seconds = time.monotonic() - self.begun
        stages = tuple(self.stages)
        arithmetic = None
        if status == HOLDS and self.proved_in is not None:
            arithmetic = self.proved_in.name
        return Verdict(status, self.found, self.bound, stages, self.domains, seconds, arithmetic)

    def run(self) -> None:
        if not self.is_about_something():
            self.proved, self.bound = True, math.inf  # nothing satisfies the unsafe set
            return
        self.stage("attack", self.attack)
        if not self.is_over:
            self.stage("bounds", self.bounds)
            self.believe()
        if not self.is_over and self.query.movable <= FEW_INPUTS:
            self.stage("input splitting", self.split_briefly)
            self.believe()
        if not self.is_over:
            self.attack_seconds = SECOND_ATTACK
            self.stage("attack", self.attack)
        if not self.is_over:
            self.branch_and_bound()

    @property
    def left(self) -> Given | None:
        """What splits of inputs have left open, if so few inputs move that they do the most; None
        if they have not begun, a counterexample contradicts their bounds, these are doubted, or
        some boxes are missing."""
        if not self.has_begun or self.doubted or self.query.movable > FEW_INPUTS:
            return None
        boxes = self.inputs.pool.boxes
        if self.inputs.found or not self.inputs.counts.add_up(len(boxes)):
            return None
        return Given(boxes, self.inputs.method, self.query.rows.slack)

    def go_on(self, given: Given) -> None:
        """Split the boxes that a search of the same property has left open, and do nothing else."""
        self.given = given
        self.bounds()
        self.believe()
        while self.has_begun and not self.is_over and not self.inputs.is_over:
            self.stage("input splitting", self.split_inputs)
            self.believe()

    @torch.no_grad()
    def is_about_something(self) -> bool:
        """Whether the unsafe set has a clause."""
        if not self.prop.regions:
            return False
        centre = self.prop.regions[0].centre
        alone = not has_one_sample(centre)
        if alone:
            centre = centre.unsqueeze(0)
        outputs = Target(self.model, centre, alone)(centre).shape[1]
        return any(case.clauses for case in self.prop.cases(outputs))

    def believe(self) -> None:
        """Begin anew for as long as the model rounds more than was thought."""
        while self.doubted and not self.is_over:
            self.stage("bounds", self.begin)

    def branch_and_bound(self) -> None:
        """Search in all ways in turn, for longer each time, and attack between."""
        while not self.is_over:
            before = time.monotonic()
            for name, work in self.ways():
                if self.is_over:
                    return
                self.stage(name, work)
                if self.doubted:
                    self.believe()
                    break
            if self.is_stuck:
                return
            self.slice *= 2
            self.attack_seconds = ATTACK_SHARE * (time.monotonic() - before)
            if not self.is_over:
                self.stage("attack", self.attack)

    def ways(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """How to search: splits of inputs where few move; of neurons first where many do; tighter
        intervals, again and again while they raise the bound faster than splits do; a solver.
        Splits that expect to end are alone, and so are those of inputs once others lag behind."""
        inputs = ("input splitting", self.split_inputs)
        if self.query.movable <= FEW_INPUTS:
            yield inputs
            if self.inputs_go_alone:
                return
        if self.neurons is None:
            yield "alpha-crown", self.optimise
        yield "neuron splitting", self.split_neurons
        if self.is_easy:
            yield "milp", self.solve_easy
        assert self.neurons is not None
        if self.neurons.expected_seconds <= PATIENCE * self.seconds_left:
            return
        pays = True
        while self.worth_tightening and pays:
            yield "tightening", self.tighten
            pays = self.rates["tightening"] > self.rates["neuron splitting"]
            if self.is_easy:
                yield "milp", self.solve_easy
        if self.arithmetic is None:  # what a solver says is no proof for an arithmetic
            yield "milp", self.solve
        if FEW_INPUTS < self.query.movable <= MANY_INPUTS:
            yield inputs

    @property
    def inputs_go_alone(self) -> bool:
        expects_to_end = self.inputs.expected_seconds <= PATIENCE * self.seconds_left
        return expects_to_end or self.neurons_lag

    @property
    def neurons_lag(self) -> bool:
        """Whether splits of neurons had their turn, proved nothing, and are farther from a proof
        than splits of inputs, by their bound and by when they expect to end."""
        neurons, inputs = self.neurons, self.inputs
        if neurons is None or neurons.counts.proved or inputs.is_stuck:
            return False
        behind = neurons.bound < inputs.pool.bound
        return behind and neurons.expected_seconds >= inputs.expected_seconds

    @property
    def is_stuck(self) -> bool:
        """Whether more time would not help."""
        if self.query.movable <= MANY_INPUTS or self.neurons is None:
            return False
        return self.neurons.is_stuck

    def stage(self, name: str, work: Callable[[], str]) -> None:
        """Do some work and note what came of it; what was done before is continued. The stage that
        was last at work stands last."""
        start, before = time.monotonic(), self.bound
        outcome = work()
        seconds = time.monotonic() - start
        self.rates[name] = rate(before, self.bound, seconds)
        for earlier in [one for one in self.stages if one.name == name]:
            self.stages.remove(earlier)
            seconds += earlier.seconds
        self.stages.append(Stage(name, seconds, outcome))
        LOGGER.info("%s: %s (%.1f s so far)", name, outcome, seconds)

    # -- stages ------------------------------------------------------------------------------------

    def attack(self) -> str:
        """Search for a counterexample by gradients, from other points each time."""
        timeout = max(min(self.attack_seconds, self.seconds_left), 0.0)
        found = attack(self.model, self.prop, timeout=timeout, seed=self.attacks)
        self.attacks += 1
        if bool(found.violated.all()):
            self.found = found
            return "a counterexample"
        return f"none found, by {float(found.margin):.4g}"

    def bounds(self) -> str:
        """Bound all clauses on the whole regions."""
        try:
            with until(self.deadline):
                self.query = Query.of(self.model, self.prop, self.arithmetic)
        except TimeLimit:
            return "not even the rounding of the model was measured"
        self.proved_in = self.query.arithmetic
        if self.given is not None:
            rows = self.query.rows
            slack = torch.maximum(rows.slack, self.given.slack)
            self.query = replace(self.query, rows=replace(rows, slack=slack))
        return self.begin()

    def begin(self) -> str:
        self.doubted = False
        self.neurons = None
        self.solving = None
        self.solved_easy = False
        self.has_begun = True
        boxes = self.query.first_boxes()
        bounder = Bounder(self.query.net, self.query.rows, self.query.arithmetic)
        self.inputs = InputSplitting(bounder, boxes, self.try_points, self.deadline)
        if self.given is None:
            self.domains += len(boxes)
            left = self.inputs.begin()
        else:
            left = self.inputs.go_on(self.given.boxes, self.given.method)
        self.open_clauses = left.clause
        self.bound = self.inputs.pool.bound
        self.proved = self.inputs.is_proved
        return f"{len(boxes) - len(left)} of {len(boxes)} clauses proved, bound {self.bound:.4g}"

    def split_briefly(self) -> str:
        """Split inputs for as long as the attack that comes next: many searches end with that."""
        return self.split_inputs(SECOND_ATTACK)

    def split_inputs(self, seconds: float | None = None) -> str:
        search = self.inputs
        search.run(seconds or self.slice)
        self.proved = search.is_proved and self.found is None
        self.bound = max(self.bound, search.pool.bound)
        self.count()
        return f"{search.counts}, {len(search.pool)} open, by {search.method}"

    def optimise(self) -> str:
        """Bound the open clauses on whole regions with optimised slopes."""
        self.neurons = NeuronSplitting(self.query, self.deadline, self.try_points)
        self.neurons.begin(self.open_clauses)
        self.proved = self.neurons.is_proved
        self.bound = max(self.bound, self.neurons.bound)
        self.count()
        return f"{self.neurons.counts.proved} of {len(self.open_clauses)} clauses proved"

    def split_neurons(self) -> str:
        assert self.neurons is not None
        search = self.neurons
        search.run(self.slice)
        self.proved = search.is_proved and self.found is None
        self.bound = max(self.bound, search.bound)
        self.count()
        return f"{search.counts}, {search.open} open"

    def tighten(self) -> str:
        """Make intervals of nodes tighter, for as long as the bounds of whole regions gain."""
        if self.neurons is None:
            return "not tried: no bounds to begin with"
        before = self.neurons.root_bound
        seconds = min(self.tighten_seconds, TIGHTEN_SHARE * self.seconds_left)
        self.worth_tightening = self.neurons.tighten(seconds)
        self.tighten_seconds *= 2
        self.proved = self.neurons.is_proved
        self.bound = max(self.bound, self.neurons.bound)
        self.count()
        return f"bound of whole regions {before:.4g} to {self.neurons.root_bound:.4g}"

    def solve_easy(self) -> str:
        """Ask a solver for whole clauses that it is likely to decide: for long, and once, for it
        cannot go on where it stopped."""
        self.solved_easy = True
        return self.solve_for(EASY_SHARE * self.seconds_left)

    def solve(self) -> str:
        """Ask a solver for the domains that cannot be split, and late for whole clauses too."""
        assert self.neurons is not None
        if self.neurons.root is None:
            return "not tried: no bounds to begin with"
        return self.solve_for(min(SOLVER_SHARE * self.slice, self.seconds_left))

    def solve_for(self, seconds: float) -> str:
        assert self.neurons is not None
        solving, refuted = self.solver(), 0
        if self.slice >= SOLVER_SLICE or solving.is_easy():
            refuted = solving.clauses(seconds)
        leaves = solving.leaves(seconds)
        if refuted + leaves:
            self.proved_in = None
        self.proved = self.neurons.is_proved and self.found is None
        return f"{refuted} clauses and {leaves} domains refuted"

    def solver(self) -> Solving:
        if self.solving is None:
            assert self.neurons is not None
            self.solving = Solving(self.query, self.inputs, self.neurons, self.try_points)
        return self.solving

    @property
    def is_easy(self) -> bool:
        """Whether a solver is likely to decide all that is open, and was not asked for long yet."""
        if self.arithmetic is not None:
            return False
        assert self.neurons is not None
        if self.solved_easy or self.neurons.root is None or not self.neurons.open:
            return False
        return self.solver().is_easy()

    def count(self) -> None:
        """How many subdomains all searches have bounded."""
        self.domains = self.inputs.counts.opened
        if self.neurons is not None:
            self.domains += self.neurons.counts.opened

    # -- counterexamples ---------------------------------------------------------------------------

    @torch.no_grad()
    def try_points(self, points: Tensor, clause: Tensor) -> bool:
        """Whether one of some inputs (points, in), each for a clause, is a counterexample, or lets
        bounds be doubted."""
        target, rows = self.query.target, self.query.rows
        points = points.reshape(-1, *self.query.shape)
        outputs = target(points)
        self.watch(points, outputs, clause)
        points = points.flatten(1)
        excess = rows.excess(points, outputs, clause)
        near = (excess <= rows.slack[clause]).all(1).nonzero().flatten()[:CANDIDATES]
        found = any(self.confirm(points[one], int(clause[one])) for one in near.tolist())
        return found or self.doubted

    def watch(self, points: Tensor, outputs: Tensor, clause: Tensor) -> None:
        """Doubt all bounds, and leave more room, where the model rounds more than was thought."""
        rows = self.query.rows
        moved = rows.moved(self.query.rounding(points, outputs), clause)
        if bool((moved > rows.slack[clause]).any()):
            self.doubted = True
            self.query = replace(self.query, rows=rows.with_more_slack(moved, clause))

    def confirm(self, point: Tensor, clause: int) -> bool:
        """Replay an input on the model itself, in the region as it was given."""
        region = self.query.regions[int(self.query.rows.case[clause])]
        x = point.reshape(region.centre.shape).to(region.centre)
        x, member = pulled_inside(region, x)
        outputs = self.query.target(x.reshape(-1, *self.query.shape))
        if not bool(member.all()) or not bool(self.prop.violated(x, outputs).all()):
            return False
        excess = self.query.rows.excess(x.reshape(1, -1), outputs, torch.tensor([clause]))
        self.found = Attack(x, outputs, torch.tensor([True]), excess.amax(1))
        return True


def as_module(model: Model) -> nn.Module:
    """The module that is verified."""
    if isinstance(model, Net):
        source = model.source
        return source.module() if isinstance(source, ExportedProgram) else source
    if isinstance(model, ExportedProgram):
        return model.module()
    if isinstance(model, nn.Module):
        return model
    if callable(model):
        return Function(model)
    raise ArgumentError(f"verify takes a model or a net, not {type(model).__name__}")
