"""Values that are functions of one whole number each, by the cases of that number.

``knots[i + 1] - knots[i]`` is positive wherever the index may be, but the intervals of both knots
meet. Element j of such a value depends on element j of i alone, as long as everything between the
two acts on each element alone. If i_j lies in [l_j, u_j], the value is one of those that the
operators compute for min(l_j + s, u_j), s = 0, 1, ...: the hull of these is its interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.compat.private import is_pointwise
from boundlab.relaxations.interval import Interval
from boundlab.rules.lookups import Lookup
from boundlab.rules.registry import Call, Rule

MOST_NUMBERS = 1 << 20
"""The size of all cases of a node together up to which they are kept."""


@dataclass(frozen=True, eq=False)
class Cases(Interval):
    """The hull of the values (cases, *shape) that an element has for each case of the same element
    of a whole number, the node ``root``."""

    values: Tensor
    root: str


def with_cases(rule: Rule, call: Call, found: Interval) -> Interval:
    """What a rule has found of a call, made tighter by the cases of its arguments if these are of
    one root, and with cases of its own if it is a whole number."""
    if found.dtype == torch.bool:
        return found
    arguments = [x for x in call.inputs if isinstance(x, Cases) and x.shape == found.shape]
    roots = {x.root for x in arguments}
    if len(arguments) == len(call.inputs) and len(roots) == 1 and _acts_on_elements(rule, call):
        f = call.bind()
        each = zip(*[x.values for x in arguments], strict=True)
        values = torch.stack([f(*values) for values in each])
        if values.dtype == found.dtype and values.shape[1:] == found.shape:
            both = found.intersect(Interval(values.amin(0), values.amax(0)))
            return Cases(both.lower, both.upper, values, *roots)
    if not found.dtype.is_floating_point:
        return _root(call.node.name, found)
    return found


def _acts_on_elements(rule: Rule, call: Call) -> bool:
    """Whether each element of the result is a function of the same element of the perturbed
    arguments alone: what torch calls pointwise, and picks from a constant row of numbers; not of
    what rounding adds as well."""
    if not rule.exact:
        return False
    if isinstance(rule, Lookup):
        return 0 not in call.positions and len(call["self"].shape) == 1
    op = call.node.op
    return is_pointwise(op)


def _root(name: str, found: Interval) -> Interval:
    """A whole number with its cases, if they are few."""
    if not found.lower.numel():
        return found
    # in this type differences do not wrap around
    width = float((found.upper.double() - found.lower.double()).max())
    crosses = bool((found.lower > found.upper).any())
    if crosses or width == 0 or (width + 1) * found.lower.numel() > MOST_NUMBERS:
        return found
    steps = range(int(width) + 1)
    values = torch.stack([torch.minimum(found.lower + step, found.upper) for step in steps])
    return Cases(found.lower, found.upper, values, name)
