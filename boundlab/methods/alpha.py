"""Optimised slopes: backward mode whose relaxations are chosen by gradient ascent on the bounds.

Each stack of rows climbs on its own: every row has its own free numbers in [0, 1] for every
relaxation that it passes (:class:`boundlab.rules.registry.Family`), so all of them rise together
and none at the cost of another. A step goes along the sign of the gradient, which needs no scale;
steps shrink, numbers stay in [0, 1], and the best of each row is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor

from boundlab.coefficients.window import Window
from boundlab.errors import ArgumentError
from boundlab.graph.layout import Layout
from boundlab.kernels.reductions import remember, remembered
from boundlab.methods.analysis import Analysis
from boundlab.methods.backward import Rows, concretize, propagate_backward
from boundlab.methods.memory import coefficients, rows_at_once
from boundlab.methods.refine import Elements, Unstable, total_size
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import Lines, Planes, Relaxation
from boundlab.rules.registry import Call, SlopeFamily

KEPT = 4
"""How much more the gradient keeps of a row, over all nodes, than one step of it takes."""
SETTLED = 0.01
"""A row ends its climb when it has risen by less than this share of its whole rise in each of
``PATIENCE`` steps."""
PATIENCE = 8
MEMORY = 0.3
"""How much of the last gradients the direction of a step remembers: less to and fro at a kink."""


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
        for name, steps in (("iterations", self.iterations), ("inner", self.inner)):
            if steps is not None and (
                isinstance(steps, bool) or not isinstance(steps, int) or steps < 0
            ):
                raise ArgumentError(
                    f"Alpha({name}=...) counts steps: a whole number >= 0, not {steps!r}"
                )
        if (
            isinstance(self.lr, bool)
            or not isinstance(self.lr, (int, float))
            or not 0 < self.lr <= 1
        ):
            raise ArgumentError(
                f"Alpha(lr=...) is a share of the range of a slope: 0 < lr <= 1, not {self.lr!r}"
            )
        if self.sides not in ("both", "lower", "upper"):
            raise ArgumentError(
                f"Alpha(sides=...) must be 'both', 'lower' or 'upper', not {self.sides!r}"
            )
        if self.stop_when is not None and (
            isinstance(self.stop_when, bool) or not isinstance(self.stop_when, (int, float))
        ):
            raise ArgumentError(
                "Alpha(stop_when=...) is a lower bound that is high enough, a number or None, not "
                f"{self.stop_when!r}"
            )

    @property
    def inner_steps(self) -> int:
        return self.iterations // 4 if self.inner is None else self.inner

    def step(self, i: int, steps: int) -> float:
        """The length of step i: it falls to a fiftieth of the first one, but not faster than by a
        factor of 0.7 a step."""
        return self.lr * max(0.7, 0.02 ** (1 / steps)) ** i


Alphas = dict[str, Tensor]
"""node -> the free numbers of its relaxation for a stack of rows: (numbers, rows, *shape)."""


@dataclass(eq=False)
class Climb:
    """One stack of rows of a target, and the free numbers of the relaxations that they pass."""

    analysis: Analysis
    target: str
    rows: Rows
    options: Alpha
    alphas: Alphas = field(default_factory=dict)
    _families: dict[str, SlopeFamily | None] = field(default_factory=dict)
    _constants: dict[str, tuple[Tensor | None, ...]] = field(default_factory=dict)

    def bounds(self) -> Tensor:
        """Lower bounds of the rows for the present numbers: (rows, samples)."""
        found = concretize(
            self.analysis,
            *propagate_backward(self.analysis, self.target, self.rows, relaxation=self._relaxation),
        )
        for name, constants in self._constants.items():
            self.analysis.finite[self.analysis.calls[name]] = tuple(map(remembered, constants))
        self._constants.clear()
        return found

    def _relaxation(self, name: str, rows: Rows) -> Relaxation:
        if name not in self._families:
            self._families[name] = self._family(name, rows)
            self._begin(name, rows)
        family = self._families[name]
        if family is None:
            return self.analysis.relaxation(name)
        member = family.at(self.alphas[name])
        if isinstance(member, (Lines, Planes)):
            self._constants[name] = member.lower_bias, member.upper_bias
            for constant, finite in zip(
                self._constants[name],
                self.analysis.finite.get(self.analysis.calls[name], ()),
                strict=False,
            ):
                remember(constant, finite)
        return (
            Gathered(member)
            if family.by_row and isinstance(rows, Window) and not self.options.share
            else member
        )

    def _begin(self, name: str, rows: Rows) -> None:
        """Numbers to start with: given ones, or those of the relaxation that crown takes."""
        family = self._families[name]
        if family is None:
            return
        start = family.start.detach()
        if family.by_row and isinstance(rows, Tensor):
            start = start.unsqueeze(1).expand(
                -1, 1 if self._for_all(name) else self._stack(name, rows), *start.shape[1:]
            )
        given = self.alphas.get(name)
        if given is not None and given.shape != start.shape:
            raise ArgumentError(
                f"the slopes of the earlier result have the shape {tuple(given.shape)} at node "
                f"{name}, and this question needs "
                f"{tuple(start.shape)}: it must have the same batch, specification and options"
            )
        if given is None:
            self.alphas[name] = start.clone().requires_grad_()

    def _for_all(self, name: str) -> bool:
        """Whether all rows share the numbers of a node: by choice, or where a weight keeps the
        samples apart."""
        nodes = self.analysis.graph.nodes
        apart = nodes[name].layout is not None and any(
            nodes[source].layout is None for source in self.analysis.calls[name].names
        )
        return self.options.share or apart

    def _stack(self, name: str, rows: Tensor) -> int:
        """How many rows a relaxation gets at once."""
        return (
            rows.shape[0]
            if self.analysis.graph.nodes[name].layout is not None
            else rows.shape[0] * rows.shape[1]
        )

    def _family(self, name: str, rows: Rows) -> SlopeFamily | None:
        rule, call = self.analysis.plan.rules[name], self.analysis.calls[name]
        if name not in self.analysis.plan.nonlinear or not self.analysis.is_open(name):
            return None
        family = rule.family(call)
        if (
            family is None
            or not family.by_row
            or self.options.share
            or not isinstance(rows, Window)
        ):
            return family
        inside = _gathered(call, rows)
        return None if inside is None else rule.family(inside)

    def climb(self, steps: int, note: Callable[[], None] = lambda: None) -> Tensor:
        """The best lower bounds found in some steps: (rows, samples). The numbers are left at the
        best of each row."""
        outside = torch.is_grad_enabled()
        with torch.enable_grad():
            found = self.bounds()
        best = first = found.detach()
        kept = {name: tensor.detach().clone() for name, tensor in self.alphas.items()}
        mean: Alphas = {}
        idle = torch.zeros(best.shape, dtype=torch.int8, device=best.device)
        for i in range(steps):
            note()
            # each row stops for itself, so that no sample depends on the others in its batch
            going = idle < PATIENCE
            if self.options.stop_when is not None:
                going &= best <= self.options.stop_when
            if not self.alphas or not bool(going.any()):
                break
            with torch.enable_grad():
                gradients = torch.autograd.grad(
                    torch.where(going, found, 0).sum(),
                    list(self.alphas.values()),
                    allow_unused=True,
                )
            with torch.no_grad():
                for name, gradient in zip(self.alphas, gradients, strict=True):
                    if gradient is not None:
                        mean[name] = (
                            gradient if name not in mean else mean[name].mul_(MEMORY).add_(gradient)
                        )
                        self.alphas[name].add_(
                            mean[name].sign(), alpha=self.options.step(i, steps)
                        ).clamp_(0, 1)
            with torch.enable_grad() if i + 1 < steps else torch.no_grad():
                found = self.bounds()
            value = found.detach()
            better = going & (value > best)
            idle = torch.where(value > best + SETTLED * (best - first), 0, idle + 1)
            self._keep(kept, better)
            best = torch.where(better, value, best)
        note()
        self.alphas = kept
        if not outside:
            return best
        # the same bounds up to rounding, as a function of what the user differentiates by
        moving = self.bounds()
        return best + torch.where(torch.isfinite(moving), moving - moving.detach(), 0)

    def _keep(self, kept: Alphas, better: Tensor) -> None:
        """Take over the numbers of the rows that got better; numbers for all rows are always the
        latest."""
        for name, tensor in self.alphas.items():
            mask = (
                None
                if name not in kept or kept[name].shape != tensor.shape
                else self._of_rows(name, tensor, better)
            )
            if mask is None:
                kept[name] = tensor.detach().clone()
            else:  # a mean with weights 0 and 1: choosing takes many times as long
                kept[name].lerp_(tensor.detach(), mask.to(tensor.dtype))

    def _of_rows(self, name: str, tensor: Tensor, better: Tensor) -> Tensor | None:
        """A mask (rows, samples) in the shape of numbers, None if these are not of single rows."""
        family, layout = self._families[name], self.analysis.graph.nodes[name].layout
        if family is None or not family.by_row or self._for_all(name):
            return None
        if layout is None:
            return better.reshape(1, -1, *[1] * (tensor.dim() - 2))
        if tensor.shape[1:3] == better.shape and layout == Layout():
            return better.reshape(1, *better.shape, *[1] * (tensor.dim() - 3))
        return layout.place(
            better.unsqueeze(2).expand(-1, -1, tensor[0, 0].numel() // better.shape[1]),
            tensor.shape[2:],
        ).unsqueeze(0)


@dataclass(frozen=True, eq=False)
class Gathered(Relaxation):
    """Lines whose elements are those of windows, (rows, samples, *sizes), not those of a node."""

    lines: Relaxation

    def backward(self, rows: Tensor) -> Any:
        raise NotImplementedError

    def forward(self, lower: Any, upper: Any) -> Any:
        raise NotImplementedError

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float]:
        rows = rows.zero_padded()
        pulled, terms = self.lines.backward(rows.values.unsqueeze(0))
        total: Tensor | float = 0.0
        for part, constant in terms:
            total = total + (part[0] if constant is None else part[0] * constant).flatten(2).sum(2)
        return [rows.with_values(part[0]) for part in pulled], total


def _gathered(call: Call, rows: Window) -> Call | None:
    """The call on the elements that the windows see, if it is elementwise without other tensors."""
    if any(isinstance(leaf, Tensor) for leaf in call.leaves) or len(call.inputs) != 1:
        return None
    (x,) = call.inputs
    if x.shape != torch.Size((rows.values.shape[1], *rows.places.shape)):
        return None
    part = Interval(rows.places.take(x.lower), rows.places.take(x.upper))
    # outside of the node anything goes that the operator is defined for
    if any(map(any, rows.places.overhang)):
        inside = rows.places.take(torch.ones_like(x.lower)) > 0
        part = Interval(
            torch.where(inside, part.lower, x.lower.flatten()[0]),
            torch.where(inside, part.upper, x.upper.flatten()[0]),
        )
    return replace(
        call, leaves=tuple(part if isinstance(leaf, Interval) else leaf for leaf in call.leaves)
    )


def _rows_at_once(analysis: Analysis, target: str) -> int:
    return (
        max(1, KEPT * coefficients(analysis) // max(1, total_size(analysis, target)))
        if rows_at_once(analysis, target)
        else 1
    )


def climb_rows(
    analysis: Analysis,
    target: str,
    rows: Tensor,
    options: Alpha,
    start: Mapping[str, Tensor] | None,
) -> tuple[Tensor, Alphas]:
    """Lower bounds of dense rows of an output, (rows, samples), and the numbers that give them.

    start: numbers to begin with, from an earlier call with as many rows. Numbers that all rows of a
    chunk share are not returned if there are several chunks.
    """
    step = _rows_at_once(analysis, target)
    found, alphas = [], []
    with Progress(transient=True, disable=not options.progress) as progress:
        task = progress.add_task(
            "optimising slopes", total=-(-len(rows) // step) * (options.iterations + 1)
        )
        for part in (slice(first, first + step) for first in range(0, len(rows), step)):
            climb = Climb(analysis, target, rows[part], options)
            climb.alphas = {
                name: _started(tensor, len(rows), part) for name, tensor in (start or {}).items()
            }
            found.append(climb.climb(options.iterations, lambda: progress.advance(task)))
            alphas.append(climb.alphas)
    if len(alphas) == 1:
        return found[0], alphas[0]
    single = [
        name
        for name in alphas[0]
        if all(
            part[name].shape[1] == len(bounds) for part, bounds in zip(alphas, found, strict=True)
        )
    ]
    return torch.cat(found), {
        name: torch.cat([part[name] for part in alphas], 1) for name in single
    }


def _started(tensor: Tensor, rows: int, part: slice) -> Tensor:
    """The given numbers of some rows, kept in [0, 1] whatever was given: outside of it no
    relaxation is sound."""
    cut = tensor[:, part] if tensor.shape[1] == rows else tensor
    return cut.detach().nan_to_num(0.5).clamp(0, 1).clone().requires_grad_()


def climb_node(
    analysis: Analysis, target: str, options: Alpha, unstable: Unstable | None
) -> Interval:
    """What is known of an intermediate node, made tighter where it is unstable still."""
    elements, known = Elements(analysis, target), analysis.interval(target)
    steps = options.inner_steps
    wanted = elements.split(
        torch.ones_like(known.lower, dtype=torch.bool) if unstable is None else unstable(known)
    )
    count = int(wanted.sum(1).max()) if wanted.numel() else 0
    if not count or not steps:
        return known
    order = wanted.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count].T
    sides = [
        torch.full(wanted.shape, -torch.inf, dtype=known.dtype, device=known.device)
        for _ in range(2)
    ]
    for chosen in order.split(max(1, _rows_at_once(analysis, target) // 2)):
        signs = torch.ones(chosen.shape, dtype=known.dtype, device=chosen.device)
        both = elements.rows(torch.cat([chosen, chosen]), torch.cat([signs, -signs]))
        bounds = Climb(analysis, target, both, replace(options, stop_when=None)).climb(steps)
        for k, part in enumerate(bounds.split(len(chosen))):
            sides[k] = torch.where(
                wanted, sides[k].scatter(1, chosen.T, part.T.to(known.dtype)), sides[k]
            )
    below, above = (elements.join(side) for side in sides)
    return known.intersect(Interval(below, -above))
