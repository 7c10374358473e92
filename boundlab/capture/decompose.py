"""Programs written in operators that have rules.

Compositions come first: they are written for tight bounds. An operator that has no rule then is
taken apart by torch's own decompositions, as often as it takes. If something would be left that has
no rule either it stays whole: errors name what the model calls, and it may never meet a perturbed
value.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram, default_decompositions
from torch.export.graph_signature import InputKind

from boundlab.capture.complex_rows import find_row
from boundlab.capture.complex_writer import is_complex
from boundlab.capture.simplify import VIEWS
from boundlab.capture.sparse import with_dense_factors
from boundlab.compat.private import (
    OpOverload,
    any_free_size,
    operators_listed_once,
    pytree,
    states_in_shape,
)
from boundlab.errors import BoundlabError, CaptureError
from boundlab.rules.registry import COMPOSITIONS, RULES, aten
from boundlab.rules.structure.table import STRUCTURES

RECURRENT = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
"""Taken apart by torch's own decompositions into linear maps, gates and products."""
DEEPEST = 8
"""How often what a decomposition gives is taken apart again."""
Decompositions = dict[Any, Callable[..., Any]]


def decompose(program: ExportedProgram) -> ExportedProgram:
    """A program in operators that have rules, as far as there are compositions and decompositions
    to write it so."""
    with_dense_factors(program)
    program = _taken_apart(program, {**_recurrent(), **_compositions()})
    for op in sorted(_without_rules(program), key=str):
        with suppress(BoundlabError):
            program = _without(program, op)
    return program


def _without(program: ExportedProgram, op: OpOverload) -> ExportedProgram:
    """The program with an operator taken apart until all that it is made of has rules; CaptureError
    if there is no such way."""
    before = _without_rules(program)
    missing = {op}
    for _ in range(DEEPEST):
        known = _torch_decompositions()
        own = {one: known[one] for one in missing if one in known}
        if len(own) < len(missing):
            break
        program = _taken_apart(program, {**_recurrent(), **own, **_compositions()})
        missing = _without_rules(program) - before
        if not missing:
            return program
    raise CaptureError(f"{op} cannot be written in operators that have rules")


def _taken_apart(program: ExportedProgram, table: Decompositions) -> ExportedProgram:
    """The program with all operators of a table written by its functions.

    These may order their results in memory otherwise than the operator does, so that a recorded
    view would not fit: views become reshapes first.
    """
    for node in program.graph.nodes:
        if node.target in VIEWS:
            node.target = aten.reshape.default
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        for context in (any_free_size, operators_listed_once, states_in_shape):
            stack.enter_context(context())
        warnings.simplefilter("ignore")
        try:
            found = program.run_decompositions(table)
        except BoundlabError:
            raise
        except Exception as error:  # whatever a composition raises
            first_line = str(error).strip().split("\n")[0]
            raise CaptureError(
                f"the model could not be written in simpler operators: {type(error).__name__}: "
                f"{first_line}"
            ) from error
    if any(spec.kind is InputKind.TOKEN for spec in found.graph_signature.input_specs):
        raise CaptureError("a decomposition has side effects")  # such as checks of values
    return found


def _without_rules(program: ExportedProgram) -> set[OpOverload]:
    """The operators of a program that compute numbers from values and have no rule, and of which
    nothing is known either of how they treat samples."""
    calls = [node for node in program.graph.nodes if _computes_numbers(node)]
    targets = {node.target for node in calls if not _becomes_pairs(node)}
    return {op for op in targets if isinstance(op, OpOverload) and not _is_known(op)}


def _computes_numbers(node: fx.Node) -> bool:
    """Whether a node is a call on tensors, not on sizes alone, with results that are tensors of
    numbers, not of truth values."""
    given = [source.meta.get("val") for source in node.all_input_nodes]
    if node.op != "call_function" or not any(
        isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(given)
    ):
        return False
    results = [one for one in pytree.tree_leaves(node.meta.get("val")) if isinstance(one, Tensor)]
    return any(one.dtype != torch.bool for one in results)


def _becomes_pairs(node: fx.Node) -> bool:
    """Whether a node computes with complex numbers, and is written with pairs of real ones."""
    return any(map(is_complex, (node, *node.all_input_nodes))) and find_row(node) is not None


def _is_known(op: OpOverload) -> bool:
    tables: tuple[Mapping[Any, Any], ...] = (RULES, COMPOSITIONS, STRUCTURES)
    return any(op in table or op.overloadpacket in table for table in tables)


def _compositions() -> Decompositions:
    """Compositions are written for real numbers: complex ones become pairs first."""
    return {op: _of_real_numbers(function) for op, function in COMPOSITIONS.items()}


def _of_real_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def composed(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        if any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in leaves):
            return NotImplemented  # leaves the operator whole
        return function(*args, **kwargs)

    return composed


@functools.cache
def _torch_decompositions() -> Decompositions:
    """All that torch has; to list them takes a quarter of a second."""
    return dict(default_decompositions().items())


@functools.cache
def _recurrent() -> Decompositions:
    """torch's own decompositions of recurrent layers."""
    defaults = default_decompositions()
    return {op: defaults[op] for op in RECURRENT if op in defaults}
