"""Elements that an index picks from a table.

For a constant index the pick is affine in the table. Of a perturbed index the interval [l, u] is
known, of whole numbers: the result is one of the entries l, l + 1, ..., u, so it lies in the hull
of theirs, each of which may be an interval itself. Step s looks at entry min(l + s, u) of every
element, so that as many steps as the widest interval has numbers visit all of them and no other,
by the operator itself, which knows what a negative index stands for. An element whose index can
only pick one entry is that entry, with its slope; all others have constant lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.errors import UnsupportedOperator
from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.interval import Interval, lower_of, upper_of
from boundlab.relaxations.lines import constant_lines
from boundlab.relaxations.picked import Picked
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.affine import MOVES, Affine
from boundlab.rules.facts import Facts
from boundlab.rules.registry import Call, aten, register

Pick = Callable[..., Tensor]
"""A table and the perturbed indices -> the elements that they pick."""


@dataclass(frozen=True, eq=False)
class Lookup(Affine):
    """A pick from a table, the first argument. wraps: whether negative indices count from the
    end."""

    wraps: bool = False
    kind: str = "lookup"

    def nonlinear(self, call: Call) -> bool:
        return any(position > 0 for position in call.positions)

    def interval(self, call: Call) -> Interval:
        if not self.nonlinear(call):
            return super().interval(call)
        pick, reached = _pick(call), self._reached(call)
        return _hull(pick, reached, call["self"])

    def relax(self, call: Call) -> Relaxation:
        if not self.nonlinear(call):
            return super().relax(call)
        table, reached, pick = call["self"], self._reached(call), _pick(call)
        bounds = _hull(pick, reached, table)
        shapes = tuple(index.shape for index in reached)
        if not isinstance(table, Interval):
            return Picked(None, bounds.lower, bounds.upper, shapes)
        if not table.dtype.is_floating_point:  # what is no real number has no slope
            return constant_lines(bounds, call.inputs)
        places = torch.arange(table.shape.numel(), device=table.device).reshape(table.shape)
        place = _hull(pick, reached, places)
        certain = place.lower == place.upper
        first = [index.lower for index in reached]
        entries = AffineMap(
            lambda values: torch.where(certain, pick(values, *first), 0),
            None,
            (table,),
            constant=0.0,
        )
        return Picked(
            entries,
            torch.where(certain, 0, bounds.lower),
            torch.where(certain, 0, bounds.upper),
            shapes,
        )

    def _reached(self, call: Call) -> list[Interval]:
        """The intervals of the perturbed indices, of whole numbers that the table has."""
        found = []
        for index, size in _indices(call):
            least = -size if self.wraps else 0
            inside = (least <= index.lower) & (index.lower <= index.upper) & (index.upper < size)
            call.require(
                inside.all(),
                f"the intervals of its indices must lie in [{least}, {size - 1}], the entries of "
                "the table",
            )
            found.append(_whole(index))
        return found


def _indices(call: Call) -> list[tuple[Interval, int]]:
    """The perturbed indices, each with the number of entries that it picks from."""
    shape, given = call["self"].shape, call.get("indices")
    if isinstance(given, (list, tuple)):
        if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in given):
            raise UnsupportedOperator(
                f"{call.node}: a mask beside or as an index that depends on what is perturbed has "
                "no rule"
            )
        pairs = zip(given, shape, strict=False)  # dimensions behind the last index have none
        return [(index, size) for index, size in pairs if isinstance(index, Interval)]
    if given is None:
        given = call["index"]
    dim = call.get("dim")
    if dim is None or not shape:
        return [(given, shape.numel())]
    return [(given, shape[dim])]


def _whole(index: Interval) -> Interval:
    """An interval of whole numbers in a type of such, where arithmetic has left it."""
    if not index.dtype.is_floating_point:
        return index
    return Interval(index.lower.floor().long(), index.upper.ceil().long())


def _pick(call: Call) -> Pick:
    """The operator as a function of its table, whether or not it is perturbed, and of the perturbed
    indices."""
    indices = tuple(position for position in call.positions if position > 0)
    return replace(call, positions=(0, *indices)).bind()


def _hull(pick: Pick, reached: Sequence[Interval], table: Interval | Tensor) -> Interval:
    """The hull of all entries of a table that indices in their intervals pick."""
    first, *others = itertools.product(*map(_steps, reached))
    lower, upper = pick(lower_of(table), *first), pick(upper_of(table), *first)
    for chosen in others:
        lower = torch.minimum(lower, pick(lower_of(table), *chosen))
        upper = torch.maximum(upper, pick(upper_of(table), *chosen))
    return Interval(lower, upper)


def _steps(index: Interval) -> Iterator[Tensor]:
    """One index after the other, until each element has been every number of its interval."""
    count = 1
    if index.lower.numel():
        count += int((index.upper - index.lower).max())
    for step in range(count):
        yield torch.minimum(index.lower + step, index.upper)


PICKS = Facts(monotone=True, **MOVES)
register(aten.gather, aten.index_select, rule=Lookup(facts=PICKS))
register(aten.index, aten.take, aten.take_along_dim, rule=Lookup(facts=PICKS, wraps=True))
