"""Rules and relaxations with room for rounding: that of the executed network, and that of the
analysis.

The relaxation of h^ = H(x^) + e with |e| <= r is that of H with r in its intercepts, and its
interval is wider by r. What the analysis rounds has the same shape. Let S be, for each element of
the node, the sum of the magnitudes of all that a linear bound of it adds up: sum_k |a_k| m_k + |b|,
with the slopes a_k, the intercept b, and the magnitudes m_k of the arguments. Then

- rows c become c a_k, off by at most u |c| |a_k| for a product and gamma |c| |a_k| for sums;
- the inner products of rows and intercepts are off by at most gamma |c| |b|;
- adding what several readers ask of an argument, and adding up the constants of a pass, is off by
  at most gamma times the magnitudes of what is added, all of which are parts of |c| S of some node;

in all by at most |c| gamma(n) S, where n counts the elements of one sample, which no inner product
exceeds, and the nodes, which no sum of parts exceeds. Slopes and intercepts are computed with a few
roundings relative to S, the value and (where the derivative of a curve was rounded absolutely) to
the arguments; these go into the count. Nodes whose elements only move are left alone: what is asked
of their argument is what was asked of them, and the nodes on both sides have room for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import DOUBLE, FLOOR, Arithmetic, gamma
from boundlab.arithmetic.double import check_whole
from boundlab.arithmetic.rows import Exact, Row, Sums, magnitude
from boundlab.arithmetic.table import find_row
from boundlab.coefficients.window import Window
from boundlab.errors import UnsupportedOperator
from boundlab.graph.graph import Node
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.picked import Picked
from boundlab.relaxations.planes import Planes
from boundlab.relaxations.relaxation import (
    ForwardBound,
    Relaxation,
    Rows,
    RowsPerSample,
    Terms,
)
from boundlab.rules.facts import UNKNOWN, Facts
from boundlab.rules.rectifiers import Rectified
from boundlab.rules.registry import Call, Rule, SlopeFamily

EVALUATIONS = 8
"""How many roundings of an operator in double precision an end of an interval passes."""
STEPS = 256
"""How many roundings the slopes and intercepts of a relaxation pass."""
CURVED = 4.0
"""By how many roundings of its argument a curve's line may be off, where its derivative is."""


@dataclass(frozen=True, eq=False)
class RoundedRule(Rule):
    """A rule with room for rounding. nodes: how many the graph has."""

    rule: Rule
    row: Row
    arithmetic: Arithmetic
    nodes: int
    kind: str = "relaxed"
    uses_result: bool = False
    facts: Facts = UNKNOWN
    exact: bool = False

    @staticmethod
    def of(node: Node, rule: Rule, arithmetic: Arithmetic, nodes: int) -> RoundedRule:
        """The rule of a node with room; an error that names the operator if it has no row."""
        row = find_row(node)
        about = (rule.kind, rule.uses_result, rule.facts)
        return RoundedRule(rule, row, arithmetic, nodes, *about, exact=isinstance(row, Exact))

    def nonlinear(self, call: Call) -> bool:
        return self.rule.nonlinear(call)

    def jumps(self, call: Call) -> bool:
        return self.rule.jumps(call)

    def unstable(self, call: Call) -> Tensor:
        return self.rule.unstable(call)

    # -- intervals ---------------------------------------------------------------------------------

    def interval(self, call: Call) -> Interval:
        """The interval of the executed result: each end is moved outward by what is rounded where
        it is attained. Errors that are relative grow with the value, so that the end of a range has
        the largest on its side."""
        found = self.rule.interval(call)
        if not found.dtype.is_floating_point:
            self._moved(call, None)  # refuses constants that are off
            for end in (found.lower, found.upper):
                check_whole(str(call.node), end, self.arithmetic)
            return found
        if found.dtype != DOUBLE.dtype:  # all that was a floating-point number is in double
            raise UnsupportedOperator(
                f"{call.node}: it makes numbers of torch's default type of whole numbers or truth "
                "values that are perturbed; with arithmetic=... convert them first: .to(x.dtype)"
            )
        lower, upper = found.lower, found.upper
        size = self.size(call)
        below = above = self.error(call, lower, size)
        if self.row.by_value(call):
            above = self.error(call, upper, size)
        if below is not None and above is not None:
            lower, upper = lower - below, upper + above
        least, most = self.row.range(call)
        lower, upper = lower.clamp(min=least), upper.clamp(max=most)
        point = torch.isinf(found.lower) & (found.lower == found.upper)
        if self.row.keeps_infinity:
            # an infinite constant (a mask) stays what it is
            return Interval(
                torch.where(point, found.lower, lower), torch.where(point, found.upper, upper)
            )
        # else it has overflown, and nothing is known
        return Interval(torch.where(point, -torch.inf, lower), torch.where(point, torch.inf, upper))

    def size(self, call: Call) -> Tensor | None:
        """The magnitudes of the terms of a sum of products; None for other operators, and for
        truth values, which have no magnitude."""
        if isinstance(self.row, Sums) or _is_of_numbers(call):
            return self.row.size(call)
        return None

    def error(self, call: Call, value: Tensor, size: Tensor | None) -> Tensor | None:
        """How far the executed result and the one computed here may be from the exact value, in
        all; None if nothing is rounded. size: of the terms, as the row says it."""
        moved = self._moved(call, size)
        # intervals are computed around their centres: relative to all terms, not to the value
        largest = value if size is None else size
        own = self.row.error(call, largest, size, DOUBLE)
        if own is None:
            return moved
        total = EVALUATIONS * own + FLOOR
        if self.arithmetic.executed is not None:
            executed = self.row.error(call, value, size, self.arithmetic.executed)
            if executed is not None:
                total = total + self.row.spare * executed
        if moved is not None:
            total = total + moved
        return total

    def _moved(self, call: Call, size: Tensor | None) -> Tensor | None:
        """How far the result moves by what constants are off."""
        if not call.errors:
            return None
        if size is None:
            raise UnsupportedOperator(
                f"{call.node}: one of its constants is computed by the model, and rounded; with "
                "arithmetic=... only sums and products may read such constants"
            )
        moved = self.row.moved(call)
        assert moved is not None
        return moved + gamma(64, DOUBLE.unit) * size  # of a difference

    # -- relaxations -------------------------------------------------------------------------------

    def relax(self, call: Call) -> Relaxation:
        call = self._exact(call)
        return self._with_room(call, self.rule.relax(call))

    def family(self, call: Call) -> SlopeFamily | None:
        call = self._exact(call)
        family = self.rule.family(call)
        if family is None:
            return None
        at = family.at
        return replace(family, at=lambda numbers: self._with_room(call, at(numbers)))

    def _exact(self, call: Call) -> Call:
        """The call with what is known of the exact result for exact arguments, instead of the
        executed one."""
        if call.result is None:
            return call
        known = call.result
        size = self.size(call)
        below, above = (self.error(call, end, size) for end in (known.lower, known.upper))
        if below is None or above is None:
            return call
        # errors are relative to the exact value, which is at most twice the known one and as much
        return replace(call, result=Interval(known.lower - 2 * below, known.upper + 2 * above))

    def _with_room(self, call: Call, relaxation: Relaxation) -> Relaxation:
        if self.facts.one_to_one and not call.errors:
            return relaxation
        if isinstance(relaxation, Rectified):
            relaxation = relaxation.lines
        return with_room(relaxation, self.room(call, relaxation))

    @torch.no_grad()
    def room(self, call: Call, relaxation: Relaxation) -> Tensor:
        """What a linear bound of the node leaves for rounding, for each of its elements."""
        size = self.size(call)
        arguments = [magnitudes(x) for x in call.inputs]
        found = self._share(call, self._all(call, relaxation, arguments, size))
        value = size
        if value is None:
            value = magnitudes(self.rule.interval(call))
        error = self.error(call, value, size)
        if error is not None:
            found = found + error
        return found.nan_to_num(torch.inf, torch.inf)

    def of_analysis(
        self, call: Call, relaxation: Relaxation, arguments: Sequence[Tensor]
    ) -> Tensor:
        """gamma(n) S for arguments of some magnitudes."""
        size = None
        if isinstance(self.row, Sums) or _is_of_numbers(call):
            size = self.row.size(replace(call, leaves=_with(call, arguments)))
        return self._share(call, self._all(call, relaxation, arguments, size))

    def _share(self, call: Call, size: Tensor) -> Tensor:
        """gamma(n) S, from S."""
        inside = [_inside(call, shape) for shape in (size.shape, *(x.shape for x in call.inputs))]
        return gamma(STEPS + self.nodes + 2 * sum(inside), DOUBLE.unit) * size

    def _all(
        self,
        call: Call,
        relaxation: Relaxation,
        arguments: Sequence[Tensor],
        terms: Tensor | None,
    ) -> Tensor:
        """S: what a linear bound of the node adds up. terms: as the row says them."""
        if isinstance(relaxation, Rounded):
            relaxation = relaxation.body
        if isinstance(relaxation, Lines):
            value = magnitudes(self.rule.interval(call))
            return size_of_lines(relaxation, arguments) + value + CURVED * sum(arguments)
        if isinstance(relaxation, Planes):
            return size_of_planes(relaxation, arguments) + magnitudes(self.rule.interval(call))
        if isinstance(relaxation, Picked):
            return size_of_picked(relaxation, arguments) + magnitudes(self.rule.interval(call))
        if terms is None:
            raise UnsupportedOperator(
                f"{call.node}: what its relaxation rounds is not known; leave arithmetic=... out"
            )
        # slopes of products are ends of intervals or centres, the intercept a product of these
        return 4 * terms


def _inside(call: Call, shape: torch.Size) -> int:
    """How many elements one sample of a value of the call has, at the most. Where samples do not
    come first, those of all."""
    if call.node.layout.plain:
        return shape[1:].numel()
    return shape.numel()


def _is_of_numbers(call: Call) -> bool:
    """Whether no truth value and no index is perturbed."""
    return all(x.dtype.is_floating_point for x in call.inputs)


def magnitudes(x: Interval) -> Tensor:
    """The largest absolute value of each element."""
    found = magnitude(x)
    assert isinstance(found, Tensor)
    return found


def _with(call: Call, arguments: Sequence[Tensor]) -> tuple[object, ...]:
    """The leaves of a call with intervals [-m, m] for its perturbed arguments."""
    leaves = list(call.leaves)
    for place, size in zip(call.positions, arguments, strict=True):
        leaves[place] = Interval(-size, size)
    return tuple(leaves)


def size_of_lines(lines: Lines, arguments: Sequence[Tensor]) -> Tensor:
    """sum |slope| magnitude + |intercept|, of the larger of both lines."""
    total = torch.zeros(())
    for low, up, size in zip(lines.lower, lines.upper, arguments, strict=True):
        total = total + torch.maximum(low.abs(), up.abs()) * size
    for bias in (lines.lower_bias, lines.upper_bias):
        if bias is not None:
            total = total + bias.abs()
    return total


def size_of_planes(planes: Planes, arguments: Sequence[Tensor]) -> Tensor:
    """The same for planes over sums of products."""
    total = planes.lower_bias.abs() + planes.upper_bias.abs()
    summed = "".join(c for i, c in enumerate(planes.result) if i not in planes.kept)
    terms = zip(planes.arguments, planes.lower, planes.upper, arguments, strict=True)
    for letters, low, up, size in terms:
        steep = torch.maximum(low.abs(), up.abs())
        # a score of -inf has no slope, whatever its magnitude
        held = torch.where(torch.isfinite(size), size, 0)
        part = torch.einsum(f"{planes.space},{letters}->{summed}", steep, held)
        for dim in planes.kept:
            part = part.unsqueeze(dim)
        total = total + part
    return total


def size_of_picked(picked: Picked, arguments: Sequence[Tensor]) -> Tensor:
    """The same for entries of a table."""
    total = torch.maximum(picked.lower.abs(), picked.upper.abs())
    if picked.entries is not None:
        total = total + picked.entries.function(arguments[0])
    return total


def with_room(relaxation: Relaxation, room: Tensor) -> Relaxation:
    """A relaxation whose bounds are further apart by ``room`` on either side."""
    if isinstance(relaxation, Lines):
        below, above = -room, room
        if relaxation.lower_bias is not None:
            below = relaxation.lower_bias - room
        if relaxation.upper_bias is not None:
            above = relaxation.upper_bias + room
        return Lines(relaxation.lower, below, relaxation.upper, above, relaxation.shapes)
    if isinstance(relaxation, Planes):
        below, above = relaxation.lower_bias - room, relaxation.upper_bias + room
        return replace(relaxation, lower_bias=below, upper_bias=above)
    return Rounded(relaxation, room)


@dataclass(frozen=True, eq=False)
class Rounded(Relaxation):
    """H(x) + e with |e| <= room."""

    body: Relaxation
    room: Tensor

    @property
    def accepts_identity(self) -> bool:
        return self.body.accepts_identity

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        parts, terms = self.body.backward(rows)
        return parts, [*terms, self._term(rows)]

    def _term(self, rows: Rows) -> tuple[Rows, Tensor]:
        return rows.abs(), -self.room

    def backward_per_sample(
        self, rows: Rows, shared: set[int]
    ) -> tuple[Sequence[RowsPerSample], Terms] | None:
        found = self.body.backward_per_sample(rows, shared)
        if found is None:
            return None
        parts, terms = found
        return parts, [*terms, self._term(rows)]

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        found = self.body.backward_window(rows)
        if found is None:
            return None
        parts, constant = found
        return parts, constant - rows.apply(torch.abs).dot(self.room)

    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        low, up = self.body.forward(lower, upper)
        return shifted(low, -self.room), shifted(up, self.room)


def shifted(form: ForwardBound, constant: Tensor) -> ForwardBound:
    """A linear function with another constant term."""
    return torch.cat([form[:-1], (form[-1] + constant)[None]])
