"""The table of operators: what a rule is, and the calls that register one.

An operator is either *affine* in its perturbed arguments (nothing to declare but its sign),
*elementwise* (declare the function and where it is convex), relaxed by a function of its own, or
*composed* of other operators. The built-in rules use the same calls that a user does.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from boundlab.compat.private import pytree
from boundlab.errors import ArgumentError, DomainError, UnsupportedOperator
from boundlab.graph.graph import Node, Operator, Ref, op_name
from boundlab.kernels.moments import moments
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.arguments import Arguments, argument
from boundlab.rules.facts import UNKNOWN, Facts

aten = torch.ops.aten

Lookup = Callable[[str], object]
"""From the name of a node to its value, or what is known of it."""


@dataclass(frozen=True, eq=False)
class Call:
    """One application of an operator during an analysis, with what is known of its arguments.

    ``leaves``: the flattened arguments; a perturbed one is an Interval. ``refs``: the same with
    references to nodes. ``positions``: the places of the perturbed ones, ``names``: the nodes that
    these come from. ``slopes``: the user's choice for the lower line of an unstable ReLU.
    ``result``: what is already known of the result, for relaxations that can use it. ``errors``:
    how far constants may be from what is given, by their places; exact ones are not named.
    """

    node: Node
    leaves: tuple[Any, ...]
    refs: tuple[object, ...]
    tree: pytree.TreeSpec
    positions: tuple[int, ...]
    names: tuple[str, ...]
    slopes: str = "adaptive"
    result: Interval | None = None
    errors: Mapping[int, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(node: Node, lookup: Lookup) -> Call:
        refs, tree = pytree.tree_flatten((node.args, dict(node.kwargs)))
        leaves = _values(refs, lookup)
        positions = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, Interval))
        names = tuple(refs[i].name for i in positions)
        return Call(node, leaves, tuple(refs), tree, positions, names)

    def with_values(self, lookup: Lookup, slopes: str = "adaptive") -> Call:
        """The same call with other values of its arguments, of which the same ones are
        perturbed."""
        leaves = _values(self.refs, lookup)
        return Call(self.node, leaves, self.refs, self.tree, self.positions, self.names, slopes)

    @property
    def inputs(self) -> tuple[Interval, ...]:
        """The intervals of the perturbed arguments, in order."""
        return tuple(self.leaves[i] for i in self.positions)

    @property
    def flat(self) -> bool:
        """Whether the leaves are the arguments: no keywords, and nothing nested."""
        return self.node.flat

    @cached_property
    def arguments(self) -> Arguments:
        """args and kwargs as the operator takes them, with intervals in the perturbed places."""
        return self.nested(self.leaves)

    def nested(self, leaves: Sequence[Any]) -> Arguments:
        """args and kwargs of which these are the leaves."""
        if self.flat:
            return tuple(leaves), {}
        nested: Arguments = pytree.tree_unflatten(leaves, self.tree)
        return nested

    def __getitem__(self, key: str | int) -> Any:
        """An argument by its name or place in the operator's schema, its default if it was not
        given; an Interval if it is perturbed."""
        args, kwargs = self.arguments
        return argument(self.node.op, args, kwargs, key)

    def get(self, name: str, default: object = None) -> Any:
        """The same for an argument that not all overloads of the operator have."""
        try:
            return self[name]
        except KeyError:
            return default

    def bind(
        self,
        function: Operator | None = None,
        constant: Callable[[object], object] = lambda leaf: leaf,
    ) -> Operator:
        """The operator (or another function of the same signature) as a function of its perturbed
        arguments alone.

        constant: what the other arguments are replaced by.
        """

        def bound(*variables: object) -> object:
            given = [constant(leaf) for leaf in self.leaves]
            for position, variable in zip(self.positions, variables, strict=True):
                given[position] = variable
            args, kwargs = self.nested(given)
            if function is None:
                return self.node.call(args, kwargs)
            return function(*args, **kwargs)

        return bound

    def require(self, condition: Tensor, what: str) -> None:
        """Raise DomainError, naming the node, unless the condition holds everywhere."""
        if not bool(condition.all()):
            raise DomainError(
                f"{self.node}: {what}{self._example(condition)}. Tighter bounds (another method, a "
                "smaller region) may avoid it."
            )

    def _example(self, condition: Tensor) -> str:
        """In words, the interval of an element for which the condition does not hold; nothing if
        it is not one condition for each element."""
        x = self.inputs[0]
        at: tuple[int, ...] = ()
        bad = (~condition).nonzero()
        if condition.shape == x.shape and len(bad):
            at = tuple(bad[0].tolist())
        if not at and len(x.shape) > 0:
            return ""
        return f", for example [{float(x.lower[at]):.6g}, {float(x.upper[at]):.6g}] at {at}"


def _values(refs: Sequence[object], lookup: Lookup) -> tuple[object, ...]:
    """Arguments with the values of nodes in the places of their references."""
    values = list(refs)
    for i, ref in enumerate(refs):
        if isinstance(ref, Ref):
            values[i] = lookup(ref.name)
    return tuple(values)


@dataclass(frozen=True, eq=False)
class SlopeFamily:
    """Relaxations of one call with free numbers in [0, 1], each of them sound.

    start: (numbers, *shape of the result), the member that the rule would choose by itself. at:
    from numbers (numbers, *shape), or (numbers, rows, *shape) where each row may have its own, to
    the relaxation.
    """

    start: Tensor
    at: Callable[[Tensor], Relaxation]
    by_row: bool = True


class Rule(ABC):
    """Base class of all rules: what a method needs to know of an operator.

    A rule states ``interval``, ``relax`` and ``nonlinear``; the other methods are capabilities
    with a default that is always right.
    """

    kind: str = "relaxed"
    """The group of rules it belongs to, for ``boundlab ops``."""
    uses_result: bool = False
    """Whether the relaxation gets tighter with ``call.result``, what is known of the result."""
    exact_in_balls: bool = False
    """Whether the interval of a call that is affine is exact for an argument in a ball whose dual
    norm is known."""
    facts: Facts = UNKNOWN
    """What is known of the operator where it is affine."""
    exact: bool = True
    """Whether results count as exact: those with room for what a machine rounds do not."""

    @abstractmethod
    def interval(self, call: Call) -> Interval:
        """Bound the result by an interval that holds it whenever the arguments lie in theirs."""

    @abstractmethod
    def relax(self, call: Call) -> Relaxation:
        """Relax the operator: linear bounds of the result in the perturbed arguments, which hold
        while these lie in their intervals."""

    @abstractmethod
    def nonlinear(self, call: Call) -> bool:
        """Whether the relaxation depends on the intervals of the arguments."""

    def jumps(self, call: Call) -> bool:
        """Whether the operator is discontinuous."""
        return False

    def unstable(self, call: Call) -> Tensor:
        """Mask the elements of the only perturbed argument for which tighter bounds could change
        the relaxation: a truth value of the argument's shape."""
        x = call.inputs[0]
        return x.lower < x.upper

    def family(self, call: Call) -> SlopeFamily | None:
        """Relaxations with free slopes, which "alpha-crown" optimises; None if there are none."""
        return None


RULES: dict[Any, Rule] = {}
COMPOSITIONS: dict[Any, Operator] = {}
Composed = TypeVar("Composed", bound=Operator)
_changes = itertools.count()
_latest = 0


def generation() -> int:
    """A number that changes whenever a rule is registered or taken out."""
    return _latest


def register(*ops: Operator, rule: Rule) -> None:
    """Give operators (overloads, or packets for all overloads) a rule; a second rule for one is an
    error."""
    if not isinstance(rule, Rule):
        raise ArgumentError(
            f"a rule must derive from boundlab.rules.registry.Rule, not {type(rule).__name__}: the "
            "base class has the defaults of all that a rule need not state"
        )
    for op in ops:
        if op in RULES or op in COMPOSITIONS:
            raise ArgumentError(f"{op_name(op)} already has a rule")
        RULES[op] = rule
    _changed()


def unregister(op: Operator) -> None:
    """Take a rule or composition out again (for tests and interactive work)."""
    if RULES.pop(op, None) is None and COMPOSITIONS.pop(op, None) is None:
        raise ArgumentError(f"{op_name(op)} has no rule")
    _changed()


def _changed() -> None:
    global _latest
    _latest = next(_changes)


def composition(*ops: Operator) -> Callable[[Composed], Composed]:
    """Decorator: express operators (overloads) by a function of others, applied when a model is
    captured."""

    def decorate(function: Composed) -> Composed:
        for op in ops:
            if op in RULES or op in COMPOSITIONS:
                raise ArgumentError(f"{op_name(op)} already has a rule")
            COMPOSITIONS[op] = function
        return function

    return decorate


@dataclass(frozen=True, eq=False)
class Relaxed(Rule):
    """The rule of a nonlinear operator given by two functions of the call."""

    bound: Callable[[Call], Interval]
    lines: Callable[[Call], Relaxation]
    kind: str = "relaxed"
    uses_result: bool = False
    has_jumps: bool = False
    choices: Callable[[Call], SlopeFamily | None] = lambda call: None

    def family(self, call: Call) -> SlopeFamily | None:
        return self.choices(call)

    def jumps(self, call: Call) -> bool:
        return self.has_jumps

    def interval(self, call: Call) -> Interval:
        return self.bound(call)

    def relax(self, call: Call) -> Relaxation:
        return self.lines(call)

    def nonlinear(self, call: Call) -> bool:
        return True


def find_rule(node: Node) -> Rule:
    """The rule of a node's operator, by overload or by packet."""
    op = node.op
    rule = RULES.get(op) or RULES.get(node.packet)
    if rule is None:
        raise UnsupportedOperator(
            f"no rule for the operator {op_name(op)} ({op}) of node {node}, which is applied to a "
            f"perturbed value. Register one: @bl.composition({op}) if it is made of simpler "
            f"operators, bl.elementwise({op}, ...) if it acts on every element alone, "
            f"bl.affine({op}) if it is affine, else a rule of its own; see docs/extending.md."
        )
    return rule


# -- operators of our own, and those that pass no perturbation on ----------------------------------

torch.library.define("boundlab::clean", "(Tensor x) -> Tensor")
torch.library.impl("boundlab::clean", "CompositeExplicitAutograd", lambda x: x.clone())
torch.library.register_fake("boundlab::clean", lambda x: torch.empty_like(x))
torch.library.define("boundlab::moments", "(Tensor x) -> Tensor")
torch.library.impl("boundlab::moments", "CompositeExplicitAutograd", lambda x: moments(x))
torch.library.register_fake("boundlab::moments", lambda x: x.new_empty(2, x.shape[1]))
torch.library.define(
    "boundlab::within", "(Tensor x, float low, float high, bool cancels) -> Tensor"
)
torch.library.impl("boundlab::within", "CompositeExplicitAutograd", lambda x, *_: x.clone())
torch.library.register_fake("boundlab::within", lambda x, *_: torch.empty_like(x))
torch.library.define("boundlab::smooth_abs", "(Tensor x, float width, float slope) -> Tensor")
torch.library.impl(
    "boundlab::smooth_abs", "CompositeExplicitAutograd", lambda x, w, s: smooth_abs(x, w, s)
)
torch.library.register_fake("boundlab::smooth_abs", lambda x, w, s: torch.empty_like(x))


def clean(x: Tensor) -> Tensor:
    """The value of x for the clean input, whatever the perturbation: what train-mode statistics are
    taken from."""
    return x


def within(x: Tensor, low: float, high: float, cancels: bool) -> Tensor:
    """x itself, which is known to lie in [low, high] for reasons that bounds do not see. cancels:
    whether it is made of differences, which rounding may move beyond that."""
    return x


def smooth_abs(x: Tensor, width: float, slope: float) -> Tensor:
    """slope |x| but for a constant, from |x| = width on, and a parabola in between."""
    size = x.abs()
    parabola = 0.5 * size * size * (slope / width)
    return torch.where(size < width, parabola, slope * (size - 0.5 * width))


OWN = {
    torch.ops.boundlab.clean.default: clean,
    torch.ops.boundlab.within.default: within,
    torch.ops.boundlab.moments.default: moments,
    torch.ops.boundlab.smooth_abs.default: smooth_abs,
}
"""Operators of our own that stand in captured graphs -> the function that takes their place."""

SHAPE_ONLY = (
    aten.sym_size.int,
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.empty_like.default,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
    aten.new_empty.default,
    aten.sym_numel.default,
)
CUTS: frozenset[object] = frozenset((*SHAPE_ONLY, clean))
"""Operators whose result does not depend on the values of their arguments, or is defined by the
clean ones."""

IDENTITIES: frozenset[object] = frozenset(
    (
        aten.clone.default,
        aten.contiguous.default,
        aten.alias.default,
        aten.detach.default,
        aten.lift_fresh_copy.default,
        aten.positive.default,
    )
)
"""Operators that only copy their argument."""
