"""What a front end knows of the values of its nodes before it runs any of them: types, shapes, and
the integers that are made from shapes, as expressions of the free sizes of inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import sympy
import torch

from boundlab.capture.layouts import Shapes
from boundlab.graph.graph import Example, Graph
from boundlab.graph.sizes import Sizes
from boundlab.rules.registry import aten

SOME = 999_983
"""Stands for a size that is not known: a prime that no other size is a multiple of."""
MANY = 1_000_003
"""Stands for a free batch size: a prime that no other size is a multiple of."""

SIZED = frozenset(
    (
        aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unflatten.int,
        aten.expand.default, aten.broadcast_to.default,
        aten.zeros.default, aten.ones.default, aten.empty.memory_format, aten.new_zeros.default,
        aten.new_ones.default, aten.new_empty.default,
    )
)  # fmt: skip
"""Operators that take a shape, and nothing else that could be a number."""


@dataclass(frozen=True, eq=False)
class Values:
    """``shapes``: of tensors, ``numbers``: integers that are made from shapes, both as expressions
    of free sizes; ``dtypes``: of tensors; ``free``: the inputs whose dimension 0, and nothing else,
    is free, and its symbol; ``assumptions``: relations between free sizes that decided what was
    traced."""

    shapes: dict[str, tuple[sympy.Expr, ...]] = field(default_factory=dict)
    numbers: dict[str, sympy.Expr] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    free: dict[str, sympy.Symbol] = field(default_factory=dict)
    assumptions: list[sympy.Basic] = field(default_factory=list)

    def note_tensor(self, name: str, shape: Iterable[sympy.Expr], dtype: torch.dtype) -> None:
        self.shapes[name] = tuple(shape)
        self.dtypes[name] = dtype

    def note_input(self, name: str) -> None:
        """Note whether the batch size of an input is free; its shape must be known."""
        shape = self.shapes.get(name, ())
        if shape and shape[0].is_Symbol and not any(size.free_symbols for size in shape[1:]):
            self.free[name] = shape[0]

    def with_samples(self, samples: int) -> Shapes:
        """Shapes and numbers for a batch: every free size is ``samples``."""
        free = set(self.free.values())
        tensors: dict[str, tuple[int, ...]] = {}
        odd: set[str] = set()
        for name, shape in self.shapes.items():
            sizes = [_multiple(size, free, samples) for size in shape]
            tensors[name] = tuple(size or 0 for size in sizes)
            if None in sizes:
                odd.add(name)
        found = {name: _multiple(number, free, samples) for name, number in self.numbers.items()}
        numbers = {name: number for name, number in found.items() if number is not None}
        masks = frozenset(name for name, dtype in self.dtypes.items() if dtype == torch.bool)
        return Shapes(samples, tensors, numbers, masks, frozenset(odd))

    def sizes(self, graph: Graph) -> Sizes:
        """What was assumed of free sizes, with the integers that are nodes of a graph."""
        numbers = {name: self.numbers[name] for name in graph.nodes if name in self.numbers}
        return Sizes(self.free, tuple(self.assumptions), numbers)

    def examples(self, graph: Graph) -> dict[str, Example]:
        """For every input that is a tensor its shape, with 0 for free sizes, its dtype, and whether
        dimension 0 is free."""
        found: dict[str, Example] = {}
        for name in graph.inputs:
            if name in self.shapes:
                shape = tuple(_fixed_or_zero(size) for size in self.shapes[name])
                found[name] = shape, self.dtypes[name], name in self.free
        return found

    def counts_samples(self, graph: Graph) -> bool:
        """Whether a number that depends on a free size is used for anything but a shape."""
        counts = {name for name, number in self.numbers.items() if number.free_symbols}
        return any(
            node.op not in SIZED
            for node in graph.nodes.values()
            if node.name in self.shapes and counts & set(node.inputs)
        )


def _fixed_or_zero(size: sympy.Expr) -> int:
    if size.free_symbols:
        return 0
    return int(size)


def _multiple(size: sympy.Expr, free: set[sympy.Symbol], samples: int) -> int | None:
    """A size that is a number, or a number times a free size, with ``samples`` for the free size;
    None for other expressions. A size that depends on values, but not on the batch, is some
    number."""
    symbols = size.free_symbols
    if not symbols:
        return int(size)
    if not symbols & free:
        return SOME
    if not symbols <= free:
        return None
    factor = size
    for symbol in symbols:
        factor = sympy.cancel(size / symbol)
        if factor.free_symbols:
            return None
    return int(factor) * samples
