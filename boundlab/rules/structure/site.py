"""A node with what is known of where the samples lie in its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boundlab.compat.private import pytree
from boundlab.graph.graph import Node, Ref
from boundlab.graph.layout import Layout
from boundlab.rules.arguments import argument

Shape = tuple[int, ...]


class Meets(Exception):
    """Samples meet in an operator; the message says how."""


class Unknown(Exception):
    """Nothing is known of how an operator treats samples."""


@dataclass(frozen=True, eq=False)
class Site:
    """A node with what is known of its arguments: ``shapes`` of all tensors, with ``samples`` in
    the place of the batch size; ``numbers``: the values of the integers that the graph computes
    from shapes; ``masks``: the tensors of truth values; ``own``: the tensors that hold, for each
    sample, its own place in the batch."""

    node: Node
    samples: int
    shapes: Mapping[str, Shape]
    layouts: Mapping[str, Layout | None]
    numbers: Mapping[str, int] = field(default_factory=dict)
    masks: frozenset[str] = frozenset()
    own: Mapping[str, Layout] = field(default_factory=dict)

    @property
    def out(self) -> Shape:
        return self.shapes[self.node.name]

    def __getitem__(self, name: str) -> Any:
        """The argument of that name in the operator's schema, its default if it was not given."""
        return argument(self.node.op, self.node.args, self.node.kwargs, name)

    def number(self, value: Ref | int | None, default: int) -> int | None:
        """The value of an integer argument, the default if it was not given; None if the graph
        computes it and it is not known."""
        if value is None:
            return default
        if isinstance(value, Ref):
            return self.numbers.get(value.name)
        return value

    @property
    def tensors(self) -> list[str]:
        """All tensors among the arguments."""
        return self._tensors((self.node.args, dict(self.node.kwargs)))

    def _tensors(self, values: object) -> list[str]:
        leaves = pytree.tree_leaves(values)
        return [leaf.name for leaf in leaves if isinstance(leaf, Ref) and leaf.name in self.shapes]

    def layout(self, value: object) -> Layout | None:
        """The layout of an argument; None if it carries no samples, or is no tensor."""
        if isinstance(value, Ref):
            return self.layouts.get(value.name)
        return None

    def shape(self, value: Ref) -> Shape:
        return self.shapes[value.name]

    def dims(self, value: Ref, dims: int | Sequence[int] | None) -> tuple[int, ...]:
        """Dimensions of an argument as numbers from 0; every one for None."""
        count = len(self.shape(value))
        if dims is None:
            return tuple(range(count))
        if isinstance(dims, int):
            dims = [dims]
        return tuple(dim % max(count, 1) for dim in dims)

    def plain(self, *values: object) -> None:
        """Refuse samples in arguments that the operator reads as a whole."""
        for name in self._tensors(values):
            if self.layouts.get(name) is not None:
                raise Meets(f"it reads '{name}' for all samples at once")

    def agreed(self, found: Iterable[Layout | None]) -> Layout | None:
        """The one layout that all arguments with samples bring to the result."""
        several = {layout for layout in found if layout is not None}
        if len(several) > 1:
            raise Meets("its arguments carry the samples in different places")
        for layout in several:
            if self.out[layout.dim] != layout.outer * layout.inner * self.samples:
                raise Meets("it changes how many samples there are")
        return next(iter(several), None)


Structure = Callable[[Site], Layout | None]
"""Where an operator leaves the samples: the layout of its result. Meets: it lets them meet."""
