"""Writing nodes of an exported program again: new nodes with shapes and types, pairs of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from boundlab.compat.private import pytree
from boundlab.rules.arguments import argument, parameters
from boundlab.rules.registry import aten

Part = fx.Node | float | None
"""The real or the imaginary part of a value; None: it is 0 everywhere."""
KEPT_META = ("stack_trace", "nn_module_stack")
"""What a node knows of the user's code."""


@dataclass(frozen=True)
class Pair:
    """A complex value; a real one has no imaginary part."""

    real: Part
    imag: Part = None

    @property
    def parts(self) -> tuple[Part, Part]:
        return self.real, self.imag


def is_complex(node: object) -> bool:
    """Whether the value of a node is complex, or has complex parts."""
    return isinstance(node, fx.Node) and any(leaf.is_complex() for leaf in tensors_of(node))


def tensors_of(node: fx.Node) -> list[Tensor]:
    """The value of a node, or its parts, as tensors without numbers."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


class Writer:
    """Writes new nodes into the graph of a program, in the place of one that is there. ``pairs``:
    complex nodes -> pair; ``stacks``: nodes that have both parts of a pair side by side -> pair."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.pairs: dict[fx.Node, Pair] = {}
        self.stacks: dict[fx.Node, Pair] = {}
        self.meta: dict[str, Any] = {}

    @contextmanager
    def in_place_of(self, node: fx.Node) -> Iterator[None]:
        """Write before a node, and as coming from the same line of the user's code."""
        self.meta = {key: node.meta[key] for key in KEPT_META if key in node.meta}
        with self.program.graph.inserting_before(node):
            yield

    # -- nodes -------------------------------------------------------------------------------------

    def call(self, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A new node, with the shape and type of its value."""
        node = self.program.graph.call_function(op, args, kwargs)
        values = fx.node.map_aggregate((args, kwargs), _value)
        assert isinstance(values, tuple)
        node.meta = {**self.meta, "val": op(*values[0], **values[1])}
        return node

    def call_like(self, result: fx.Node, op: Any, *args: Any) -> fx.Node:
        """The same with real numbers in the shape of another node's value, for operators that fix
        the batch size where they are called."""
        node, value = self.program.graph.call_function(op, args), result.meta["val"]
        node.meta = {**self.meta, "val": value.new_empty(value.shape, dtype=value.dtype.to_real())}
        return node

    def constant(self, tensor: Tensor, like: fx.Node) -> fx.Node:
        """A new constant of the type and on the device of another node's value."""
        module = self.program.graph_module
        taken = sum(1 for _ in module.named_buffers(remove_duplicate=False))
        name = f"complex_constant_{taken}"
        value = like.meta["val"]
        module.register_buffer(name, tensor.to(value.dtype).to(value.device))
        node = self.program.graph.get_attr(name)
        node.meta["val"] = value.new_empty(tensor.shape)
        return node

    def argument(self, node: fx.Node, name: str) -> Any:
        target: Any = node.target
        return argument(target, node.args, node.kwargs, name)

    def again(self, node: fx.Node, changed: Mapping[str, Any]) -> fx.Node:
        """The node once more, with some arguments changed; those that were not given stay so."""
        target: Any = node.target
        table = parameters(target)
        args = [changed.get(table[place].name, arg) for place, arg in enumerate(node.args)]
        kwargs = {name: changed.get(name, arg) for name, arg in node.kwargs.items()}
        return self.call(target, *args, **kwargs)

    # -- pairs -------------------------------------------------------------------------------------

    def pair(self, value: object) -> Pair:
        """A node or number as a pair; complex nodes that were not written again are taken apart."""
        if isinstance(value, complex):
            return Pair(value.real or None, value.imag or None)
        if isinstance(value, (int, float)):
            return Pair(value)
        assert isinstance(value, fx.Node), value
        if not is_complex(value):
            return Pair(value)
        if value not in self.pairs:
            both = self.call(aten.view_as_real.default, value)
            parts = [self.call(aten.select.int, both, -1, index) for index in (0, 1)]
            self.pairs[value] = Pair(*parts)
        return self.pairs[value]

    def nodes_of(self, pair: Pair) -> tuple[fx.Node, fx.Node]:
        """Both parts of a pair that has at least one, as nodes."""
        real, imag = pair.parts
        some = real if isinstance(real, fx.Node) else imag
        assert isinstance(some, fx.Node)

        def filled(part: Part) -> fx.Node:
            if isinstance(part, fx.Node):
                return part
            if part is None:
                return self.call(aten.zeros_like.default, some)
            return self.call(aten.full_like.default, some, part)

        return filled(real), filled(imag)

    def cast(self, part: Part, dtype: torch.dtype) -> fx.Node | None:
        """A part as numbers of a type."""
        if part is None:
            return None
        assert isinstance(part, fx.Node)
        if part.meta["val"].dtype == dtype:
            return part
        return self.call(aten._to_copy.default, part, dtype=dtype)

    def apply(self, op: Any, x: Part, *others: Any) -> fx.Node | None:
        """A linear operator of a part: nothing of nothing."""
        if x is None:
            return None
        return self.call(op, x, *others)

    def total(self, *terms: tuple[int, Part]) -> Part:
        """The sum of parts with signs."""
        found: Part = None
        for sign, term in terms:
            if term is None:
                continue
            if found is None:
                found = term if sign > 0 else self.call(aten.neg.default, term)
            else:
                op = aten.add.Tensor if sign > 0 else aten.sub.Tensor
                found = self.call(op, found, term)
        return found

    def times(self, x: Pair, y: Pair) -> Pair:
        """The product of two pairs, element by element."""

        def term(a: Part, b: Part) -> Part:
            if a is None or b is None:
                return None
            if not isinstance(a, fx.Node):
                a, b = b, a
            return self.call(aten.mul.Tensor, a, b)

        return Pair(
            self.total((1, term(x.real, y.real)), (-1, term(x.imag, y.imag))),
            self.total((1, term(x.real, y.imag)), (1, term(x.imag, y.real))),
        )


def _value(leaf: Any) -> Any:
    if isinstance(leaf, fx.Node):
        return leaf.meta["val"]
    return leaf
