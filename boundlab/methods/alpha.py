"""Optimised slopes: backward mode whose relaxations are chosen by gradient ascent on the bounds.

Every row of coefficients has its own alphas in [0, 1] for every relaxation that it passes
(:class:`boundlab.rules.registry.SlopeFamily`), and its own betas >= 0 for every split, so all
bounds rise together and none at the cost of another. A step goes along the sign of the gradient,
which needs no scale; steps shrink, and the best of each row is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.coefficients.dense import Dense, PerSample
from boundlab.coefficients.window import Window
from boundlab.errors import ArgumentError
from boundlab.kernels.reductions import remember, remembered
from boundlab.methods.analysis import Analysis
from boundlab.methods.backward import Steps, WindowRelaxation, concretize, propagate_backward
from boundlab.methods.memory import coefficients, rows_at_once
from boundlab.methods.optimizer import Variable, ascend
from boundlab.methods.refine import Unstable, total_size
from boundlab.methods.seen import SeenByWindows, seen_by_windows
from boundlab.methods.state import Alphas, Betas
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.planes import Planes
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.registry import SlopeFamily

GRAPH_FACTOR = 4
"""How much more autograd keeps of a row, over all nodes, than one step of it takes."""
Report = Callable[[str, int, int], None]
"""Told of progress: what is done, how many steps are done, and of how many."""


@dataclass(frozen=True)
class Alpha:
    """How slopes are optimised.

    iterations: gradient steps for the outputs. inner: steps for each intermediate node that matters
    (default: a quarter). lr: the first step, in units of the range of a slope; later ones shrink.
    sides: "both", "lower" or "upper", the sides worth the work; the other keeps its crown bound.
    share: one set of slopes for all rows of a node instead of one a row (less memory, looser).
    stop_when: a lower bound that is high enough, for example 0.0 for margins; rows that reach it
    are left alone. progress: show a bar.
    """

    iterations: int = 20
    inner: int | None = None
    lr: float = 0.45
    sides: str = "both"
    share: bool = False
    stop_when: float | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        _check_steps("iterations", self.iterations)
        if self.inner is not None:
            _check_steps("inner", self.inner)
        if not _is_number(self.lr) or not 0 < self.lr <= 1:
            raise ArgumentError(
                f"Alpha(lr=...) is a share of the range of a slope: 0 < lr <= 1, not {self.lr!r}"
            )
        if self.sides not in ("both", "lower", "upper"):
            raise ArgumentError(
                f"Alpha(sides=...) must be 'both', 'lower' or 'upper', not {self.sides!r}"
            )
        if self.stop_when is not None and not _is_number(self.stop_when):
            raise ArgumentError(
                "Alpha(stop_when=...) is a lower bound that is high enough, a number or None, not "
                f"{self.stop_when!r}"
            )

    @property
    def inner_steps(self) -> int:
        if self.inner is None:
            return self.iterations // 4
        return self.inner

    def step(self, i: int, steps: int) -> float:
        """The length of step i: it falls to a fiftieth of the first one, but not faster than by a
        factor of 0.7 a step."""
        return self.lr * max(0.7, 0.02 ** (1 / steps)) ** i


def _check_steps(name: str, steps: object) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ArgumentError(f"Alpha({name}=...) counts steps: a whole number >= 0, not {steps!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(eq=False)
class SlopeOptimizer:
    """One stack of coefficients of a target, and the variables of the relaxations that they pass:
    alphas of slope families, betas of splits.

    given: alphas and betas to begin with, by node.
    """

    analysis: Analysis
    target: str
    rows: Coefficients
    options: Alpha
    given_alphas: Mapping[str, Tensor] = field(default_factory=dict)
    given_betas: Mapping[str, Tensor] = field(default_factory=dict)
    variables: dict[tuple[str, str], Variable] = field(default_factory=dict)
    """("alpha" or "beta", node) -> variable, in the order of the backward pass."""
    _families: dict[str, SlopeFamily | None] = field(default_factory=dict)
    _constants: dict[str, tuple[Tensor | None, ...]] = field(default_factory=dict)

    def optimize(self, steps: int, report: Callable[[], None] = lambda: None) -> Tensor:
        """The best lower bounds found in some steps: (rows, samples). The variables are left at the
        best of each row."""
        differentiable = torch.is_grad_enabled()
        length = partial(self.options.step, steps=steps)
        enough = self.options.stop_when
        best, values = ascend(
            self.bounds, self.variables, steps, length, enough, report, self._room
        )
        for key, value in values.items():
            self.variables[key].value = value
        if not differentiable:
            return best
        # the same bounds up to rounding, as a function of what the user differentiates by
        moving = self.bounds()
        return best + torch.where(torch.isfinite(moving), moving - moving.detach(), 0)

    @torch.no_grad()
    def _room(self, bounds: Tensor) -> Tensor:
        """How far bounds (rows, samples) are below the middle of what is known of the target: about
        how far they may rise; 0 where that is not finite."""
        known = self.analysis.interval(self.target)
        middle = self.rows.dot(known.lower / 2 + known.upper / 2)
        return (middle - bounds).nan_to_num(0.0, 0.0, 0.0)

    def values(self, kind: str) -> dict[str, Tensor]:
        """The alphas or the betas, by node."""
        return {name: var.value for (of, name), var in self.variables.items() if of == kind}

    def bounds(self) -> Tensor:
        """Lower bounds for the present variables: (rows, samples)."""
        steps = Steps(relaxation=self._sloped, adjust=self._adjust)
        ends, bias = propagate_backward(self.analysis, self.target, self.rows, steps)
        found = concretize(self.analysis, ends, bias)
        for name, constants in self._constants.items():
            self.analysis.finite[self.analysis.calls[name]] = tuple(map(remembered, constants))
        self._constants.clear()
        return found

    def _adjust(self, name: str, rows: Coefficients) -> tuple[Coefficients, Tensor | float]:
        """The coefficients of a node under the constraints sign (x - at) >= 0 of its split,
        weighted by beta >= 0 (beta-CROWN):

        <A, x> = <A - beta sign, x> + <beta sign, x> >= <A - beta sign, x> + <beta sign, at>.
        """
        split = self.analysis.splits.get(name)
        if split is None:
            return rows, 0.0
        whole = rows.whole()
        if ("beta", name) not in self.variables:
            self.variables["beta", name] = self._multipliers(name, whole)
        beta = self.variables["beta", name].value[0].reshape(whole.values.shape)
        weight = whole.with_values(beta * split.sign)
        return whole.with_values(whole.values - weight.values), weight.dot(split.at)

    def _multipliers(self, name: str, rows: Dense) -> Variable:
        """Betas of a split: 0 to begin with, in units of the largest coefficient of the node."""
        shape = self.analysis.interval(name).shape
        value = torch.zeros(1, _stack(rows), *shape, dtype=rows.dtype, device=rows.device)
        # a node behind inactive neurons has no coefficients yet: then those that are asked for
        largest = _largest(rows)
        largest = torch.where(largest > 0, largest, _largest(self.rows))
        scale = self._by_row(name, largest, value)
        rows_of = partial(self._by_row, name, like=value)
        given = self.given_betas.get(name)
        if given is not None:
            value = self._checked(name, given, value).clamp(min=0)
        return Variable(value.clone().requires_grad_(), scale, math.inf, rows_of)

    def _sloped(self, name: str, rows: Coefficients) -> Relaxation | WindowRelaxation:
        """The relaxation of a node for the present alphas."""
        if name not in self._families:
            self._families[name] = self._family(name, rows)
            self._begin(name, rows)
        family = self._families[name]
        if family is None:
            return self.analysis.relaxation(name)
        member = family.at(self.variables["alpha", name].value)
        if isinstance(member, (Lines, Planes)):
            self._constants[name] = member.lower_bias, member.upper_bias
            known = self.analysis.finite.get(self.analysis.calls[name], ())
            for constant, finite in zip(self._constants[name], known, strict=False):
                remember(constant, finite)
        if family.by_row and isinstance(rows, Window) and not self.options.share:
            return SeenByWindows(member)
        return member

    def _begin(self, name: str, rows: Coefficients) -> None:
        """Alphas to start with: given ones, or those of the relaxation that crown takes."""
        family = self._families[name]
        if family is None:
            return
        start = family.start.detach()
        own = family.by_row and not self._for_all(name)  # alphas for every row
        if family.by_row and isinstance(rows, Dense):
            stack = _stack(rows) if own else 1
            start = start.unsqueeze(1).expand(-1, stack, *start.shape[1:])
        given = self.given_alphas.get(name)
        if given is not None:
            start = self._checked(name, given, start).clamp(0, 1)
        rows_of = None
        if own:
            rows_of = partial(self._by_row, name, like=start)
        self.variables["alpha", name] = Variable(start.clone().requires_grad_(), rows_of=rows_of)

    @staticmethod
    def _checked(name: str, given: Tensor, start: Tensor) -> Tensor:
        """Given numbers, which must have the shape of those to start with; NaN is none."""
        if given.shape != start.shape:
            raise ArgumentError(
                f"the slopes of the earlier result have the shape {tuple(given.shape)} at node "
                f"{name}, and this question needs {tuple(start.shape)}: it must have the same "
                "batch, specification and options"
            )
        return given.detach().to(start).nan_to_num(0.5)

    def _for_all(self, name: str) -> bool:
        """Whether all rows share the alphas of a node: by choice, or where a weight keeps the
        samples apart."""
        if self.options.share:
            return True
        nodes = self.analysis.graph.nodes
        sources = self.analysis.calls[name].names
        return nodes[name].layout.batched and any(not nodes[s].layout.batched for s in sources)

    def _family(self, name: str, rows: Coefficients) -> SlopeFamily | None:
        """The relaxations to choose from at a node: of its elements, or of those that windows see
        if every row has alphas of its own; None if there is no choice."""
        rule, call = self.analysis.plan.rules[name], self.analysis.calls[name]
        if name not in self.analysis.plan.nonlinear or not self.analysis.is_open(name):
            return None
        family = rule.family(call)
        if family is None or not family.by_row or self.options.share:
            return family
        if not isinstance(rows, Window):
            return family
        inside = seen_by_windows(call, rows)
        if inside is None:
            return None
        return rule.family(inside)

    def _by_row(self, name: str, values: Tensor, like: Tensor) -> Tensor:
        """Values (rows, samples) in the shape of a variable (numbers, rows, *shape), or (numbers,
        rows, samples, *window)."""
        layout = self.analysis.graph.nodes[name].layout
        return layout.spread(values, like.shape[2:]).unsqueeze(0)


def _stack(rows: Dense) -> int:
    """How many rows a relaxation gets at once."""
    if isinstance(rows, PerSample):
        return len(rows.flat())
    return len(rows)


@torch.no_grad()
def _largest(rows: Coefficients) -> Tensor:
    """The largest coefficient: (rows, samples)."""
    return rows.by_sample().abs().amax(2)


def _rows_at_once(analysis: Analysis, target: str) -> int:
    """How many rows of a target may be optimised at once; an error if not even one fits."""
    rows_at_once(analysis, target)
    return max(1, GRAPH_FACTOR * coefficients(analysis) // max(1, total_size(analysis, target)))


@dataclass(frozen=True, eq=False)
class Optimized:
    """Lower bounds (rows, samples), and the alphas and betas that give them, by node."""

    bounds: Tensor
    alphas: Alphas
    betas: Betas


def optimize_spec(
    analysis: Analysis,
    target: str,
    rows: Coefficients,
    options: Alpha,
    start: tuple[Alphas, Betas],
    report: Report | None = None,
) -> Optimized:
    """Optimised lower bounds of rows of an output.

    start: alphas and betas that an earlier question with as many rows has found. Alphas that all
    rows of a chunk share are not returned if there are several chunks.
    """
    step = _rows_at_once(analysis, target)
    chunks = [slice(first, first + step) for first in range(0, len(rows), step)]
    total = len(chunks) * (options.iterations + 1)
    done = 0

    def note() -> None:
        nonlocal done
        done += 1
        if report is not None:
            report("optimising slopes", done, total)

    given_alphas, given_betas = start
    parts = []
    for chunk in chunks:
        optimizer = SlopeOptimizer(
            analysis,
            target,
            rows[chunk],
            options,
            {name: _of_chunk(a, len(rows), chunk) for name, a in given_alphas.items()},
            {name: _of_chunk(b, len(rows), chunk) for name, b in given_betas.items()},
        )
        bounds = optimizer.optimize(options.iterations, note)
        parts.append(Optimized(bounds, optimizer.values("alpha"), optimizer.values("beta")))
    if len(parts) == 1:
        return parts[0]
    bounds = torch.cat([part.bounds for part in parts])
    sizes = [len(part.bounds) for part in parts]
    alphas = _stacked([part.alphas for part in parts], sizes)
    betas = _stacked([part.betas for part in parts], sizes)
    return Optimized(bounds, alphas, betas)


def _of_chunk(tensor: Tensor, rows: int, chunk: slice) -> Tensor:
    """The numbers of some rows; those that all rows share as they are."""
    if tensor.shape[1] != rows:
        return tensor
    return tensor[:, chunk]


def _stacked(parts: list[Mapping[str, Tensor]], sizes: list[int]) -> dict[str, Tensor]:
    """The numbers of all chunks, of the nodes where each row has its own."""
    found = {}
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        if [tensor.shape[1] for tensor in tensors] == sizes:
            found[name] = torch.cat(tensors, 1)
    return found


def optimize_node(
    analysis: Analysis, target: str, options: Alpha, unstable: Unstable | None
) -> Interval:
    """The interval of an intermediate node, tightened where it is unstable still."""
    elements, known = analysis.elements(target), analysis.interval(target)
    steps = options.inner_steps
    if unstable is None:
        wanted = elements.split(torch.ones_like(known.lower, dtype=torch.bool))
    else:
        wanted = elements.split(unstable(known))  # (samples, size)
    if not steps or not wanted.numel():
        return known
    count = int(wanted.sum(1).max())
    if not count:
        return known
    order = wanted.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count].T
    infinite = torch.full(wanted.shape, -torch.inf, dtype=known.dtype, device=known.device)
    sides = [infinite, infinite]
    for chosen in order.split(max(1, _rows_at_once(analysis, target) // 2)):
        signs = torch.ones(chosen.shape, dtype=known.dtype, device=chosen.device)
        both = elements.rows(torch.cat([chosen, chosen]), torch.cat([signs, -signs]))
        optimizer = SlopeOptimizer(analysis, target, both, replace(options, stop_when=None))
        bounds = optimizer.optimize(steps)
        for k, part in enumerate(bounds.split(len(chosen))):
            found = sides[k].scatter(1, chosen.T, part.T.to(known.dtype))
            sides[k] = torch.where(wanted, found, sides[k])
    below, above = (elements.join(side) for side in sides)
    return known.intersect(Interval(below, -above))
