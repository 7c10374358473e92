"""The frozen computational graph G = (V, E) that every method works on.

Front ends (``boundlab.capture``) produce it; methods only read it. Its executable specification is
:meth:`Graph.run`: running the graph on plain tensors gives what the model gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from boundlab.compat.private import OpOverload, pytree, qualified_name
from boundlab.graph.layout import SHARED, SampleLayout
from boundlab.graph.sizes import Sizes


@dataclass(frozen=True)
class Ref:
    """The place of another node's value in the arguments of a node."""

    name: str


Operator = Callable[..., Any]
"""An operator of torch, or a function of tensors."""
Example = tuple[tuple[int, ...], torch.dtype, bool]
"""Of an input: its shape, with 0 for free sizes, its dtype, and whether dimension 0 is free."""


@dataclass(frozen=True)
class Origin:
    """Where a node comes from in the user's code."""

    module: str = ""
    line: str = ""

    def __str__(self) -> str:
        parts = []
        if self.module:
            parts.append(f"module '{self.module}'")
        if self.line:
            parts.append(self.line)
        return ", ".join(parts)


def _replaced(arg: object, lookup: Callable[[str], object]) -> Any:
    """As ``pytree.tree_map`` would do it, in a tenth of the time: every node of every question
    comes by."""
    if isinstance(arg, Ref):
        return lookup(arg.name)
    if isinstance(arg, (list, tuple)):
        return type(arg)(_replaced(part, lookup) for part in arg)
    if isinstance(arg, dict):
        return {key: _replaced(part, lookup) for key, part in arg.items()}
    return arg


@dataclass(frozen=True, eq=False)
class Node:
    """One node: an independent node (``op is None``: a model input, parameter or constant) or a
    call ``op(*args, **kwargs)``.

    ``output`` picks one result of an operator that returns several. ``layout`` says where the
    samples of the batch lie in the node's value.
    """

    name: str
    op: Operator | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    output: int | None = None
    layout: SampleLayout = SHARED
    origin: Origin = Origin()

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """u(i): the names of the nodes this one reads, each once."""
        leaves = pytree.tree_leaves((self.args, dict(self.kwargs)))
        return tuple(dict.fromkeys(leaf.name for leaf in leaves if isinstance(leaf, Ref)))

    @property
    def packet(self) -> Operator | None:
        """The operator without its overload: ``aten.add`` of ``aten.add.Tensor``; None for plain
        functions and independent nodes."""
        if isinstance(self.op, OpOverload):
            return self.op.overloadpacket
        return None

    @cached_property
    def flat(self) -> bool:
        """Whether there are no keywords and nothing nested among the arguments."""
        nested = any(isinstance(arg, (list, tuple, dict)) for arg in self.args)
        return not self.kwargs and not nested

    def arguments(self, lookup: Callable[[str], object]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """args and kwargs with every reference replaced by what ``lookup`` says of it."""
        args = tuple(_replaced(arg, lookup) for arg in self.args)
        kwargs = {key: _replaced(arg, lookup) for key, arg in self.kwargs.items()}
        return args, kwargs

    def call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        """H_i: the value of the node for concrete arguments."""
        assert self.op is not None
        result = self.op(*args, **kwargs)
        if self.output is None:
            return result
        return result[self.output]

    def __str__(self) -> str:
        text = f"{self.name} = {op_name(self.op)}"
        where = str(self.origin)
        if where:
            text += f" ({where})"
        return text


def equal(a: object, b: object) -> bool:
    """Whether two constants are the same tensor, or two tensors of the same values."""
    if a is b:
        return True
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    both_nan = (a != a) & (b != b)
    return bool(((a == b) | both_nan).all())


def op_name(op: Operator | None) -> str:
    """The name of an operator as users know it: ``aten.relu``."""
    if op is None:
        return "input"
    if isinstance(op, OpOverload):
        op = op.overloadpacket
    name = qualified_name(op) or str(getattr(op, "__name__", op))
    return name.replace("::", ".")


def _held(graph: Graph) -> list[str]:
    return [name for name in graph.nodes if name in graph.constants]


def _kind(graph: Graph, name: str) -> str:
    """What an independent node is; empty for calls and constants."""
    if name in graph.parameters:
        return "parameter " + graph.parameters[name]
    if name in graph.inputs:
        return "input"
    return ""


def _written(graph: Graph, batch: Mapping[str, int]) -> tuple[object, ...]:
    """A graph in a form that does not depend on the names of its nodes; integers that it makes from
    shapes are put in where they are known for the batch sizes."""
    known = graph.sizes.known(batch)
    unknown = [name for name in graph.nodes if name not in known]
    places = {name: Ref(str(place)) for place, name in enumerate(unknown)}
    written = []
    for name in unknown:
        node = graph.nodes[name]
        args, kwargs = node.arguments(lambda source: known.get(source, places.get(source)))
        written.append((node.op, args, kwargs, node.output, _kind(graph, name)))
    outputs = _replaced(graph.outputs, lambda name: places.get(name, Ref(name)))
    return tuple(written), outputs


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in topological order, and which of them are inputs, parameters and outputs.

    ``inputs``: names of the model's inputs in order. ``parameters``: node name -> the path of the
    parameter or buffer in the module. ``constants``: node name -> tensor. ``outputs``: names (or
    plain constants) of the outputs. ``batched``: whether dimension 0 of the inputs with a layout
    counts samples. ``modules``: module path -> its last node. ``examples``: input -> what is known
    of its shape and type. ``literals``: input that is not a tensor -> its value, fixed at capture.
    ``sizes``: what was assumed of free sizes. ``counts_samples``: whether values depend on how many
    samples there are, so that a batch must not be taken apart. ``unknown``: nodes of which it is
    not known whether samples meet in them -> the reason.
    """

    nodes: Mapping[str, Node]
    inputs: tuple[str, ...]
    parameters: Mapping[str, str]
    constants: Mapping[str, Tensor]
    outputs: tuple[object, ...]
    batched: bool
    modules: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, Example] = field(default_factory=dict)
    literals: Mapping[str, object] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)
    counts_samples: bool = False
    unknown: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for node in self.nodes.values():
            missing = [name for name in node.inputs if name not in seen]
            assert not missing, f"{node} reads {missing} before they are computed"
            seen.add(node.name)
        assert all(o.name in seen for o in self.outputs if isinstance(o, Ref))

    def computes(self, other: Graph, batch: Mapping[str, int] | None = None) -> bool:
        """Whether another graph applies the same operators, with the same settings, to the same
        values, and returns the same of them: for inputs of these batch sizes, or in all that is
        fixed."""
        batch = batch or {}
        if _written(self, batch) != _written(other, batch):
            return False
        return all(
            equal(self.constants[mine], other.constants[its])
            for mine, its in zip(_held(self), _held(other), strict=True)
        )

    @cached_property
    def knows_devices(self) -> bool:
        """Whether it holds tensors of a device, or makes some there."""
        leaves = (
            leaf
            for node in self.nodes.values()
            for leaf in pytree.tree_leaves((node.args, dict(node.kwargs)))
        )
        return bool(self.constants) or any(isinstance(leaf, torch.device) for leaf in leaves)

    def run(
        self, values: Mapping[str, object], keep: Callable[[str], bool] | None = None
    ) -> dict[str, Any]:
        """The executable specification: the value of every node, given those of all independent
        nodes."""
        env: dict[str, Any] = dict(values)
        for node in self.nodes.values():
            if node.name not in env and (keep is None or keep(node.name)):
                env[node.name] = node.call(*node.arguments(env.__getitem__))
        return env

    def ancestors(self, targets: tuple[str, ...], ends: Set[object] = frozenset()) -> set[str]:
        """The targets and every node that they depend on, but not through operators in ``ends``."""
        found: set[str] = set()
        stack = list(targets)
        while stack:
            name = stack.pop()
            if name in found:
                continue
            found.add(name)
            if self.nodes[name].op not in ends:
                stack.extend(self.nodes[name].inputs)
        return found

    def dependents(self, sources: set[str], cuts: Set[object] = frozenset()) -> set[str]:
        """The sources and every node whose value depends on one of them; operators in ``cuts`` pass
        nothing on."""
        found = set(sources)
        for node in self.nodes.values():
            if node.op not in cuts and any(name in found for name in node.inputs):
                found.add(node.name)
        return found
