"""The PyTorch front end: ``torch.export`` to our graph.

Everything that knows about torch.export stands in this file and in ``fx_reader.py``; the rest of
this room would serve another front end as well.
"""

from __future__ import annotations

import inspect
import logging
import re
import traceback
import types
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, ShapesCollection

from boundlab.capture.batch import Examples, Trial, find_batch
from boundlab.capture.complex_pairs import as_pairs
from boundlab.capture.decompose import decompose
from boundlab.capture.faithful import gradients_if_possible, run_itself
from boundlab.capture.fx_reader import free_symbols, read
from boundlab.capture.outputs import returning_plain
from boundlab.capture.simplify import simplify
from boundlab.capture.sparse import SPARSE_WORDS, UNREGISTERED
from boundlab.capture.values import Values
from boundlab.compat.private import (
    any_free_size,
    is_fake,
    lists_of_weights,
    maps_recorded,
    masks_as_given,
    masks_out_of_place,
    parts_uncompiled,
    pytree,
    quiet,
)
from boundlab.errors import ArgumentError, CaptureError, MixedSamples
from boundlab.graph.graph import Graph

log = logging.getLogger("boundlab")

DERIVATIVES = (
    "functorch",
    "has no attribute 'constant'",
    "fake tensor in the exported program constant's list",
    "inside of vmap",  # torch 2.6, of torch.func.jacrev
)
"""What torch.export says of models that take derivatives."""
DERIVATIVES_AT = "_free_unbacked_symbols_with_path"
"""The function in which torch.export of torch 2.10 fails on them, without a word."""
DERIVATIVES_INSIDE = (
    "the model seems to take derivatives inside (torch.func, torch.autograd.grad), which "
    "torch.export does not record: write them out by hand."
)

Arguments = tuple[tuple[object, ...], dict[str, object]]
"""Example arguments of a model: those by place, those by name."""
Captured = tuple[Graph, pytree.TreeSpec, pytree.TreeSpec]
"""A graph, and how the inputs and the outputs of the model are nested."""

# -- callables as modules --------------------------------------------------------------------------


class Function(nn.Module):
    """A plain callable as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.forward = _as_forward(function)
        self.modules_used = nn.ModuleList(_modules_of(function))


def _as_forward(function: Callable[..., object]) -> Callable[..., object]:
    """The function under the name ``forward``: torch.export records the source lines of functions
    of that name only."""
    if not isinstance(function, types.FunctionType):

        def forward(*args: object, **kwargs: object) -> object:
            return function(*args, **kwargs)

        return forward
    code = function.__code__.replace(co_name="forward", co_qualname="forward")
    renamed = types.FunctionType(
        code, function.__globals__, "forward", function.__defaults__, function.__closure__
    )
    renamed.__kwdefaults__ = function.__kwdefaults__
    return renamed


def _modules_of(function: Callable[..., object]) -> list[nn.Module]:
    """Modules that a function reads from around it or is bound to: their parameters can then be
    found by name."""
    around: list[object] = [getattr(function, "__self__", None)]
    if isinstance(function, types.FunctionType):
        used = inspect.getclosurevars(function)
        around += [*used.nonlocals.values(), *used.globals.values()]
    return [thing for thing in around if isinstance(thing, nn.Module)]


# -- attempts --------------------------------------------------------------------------------------


def export(
    model: nn.Module | ExportedProgram,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    batched: bool | None,
    own_size: bool = False,
    trace: Trace | None = None,
) -> Captured:
    """The graph of ``model`` and the pytree specifications of its inputs and outputs.

    batched: True if dimension 0 of the tensor inputs must count samples, False if it must not, None
    to find out. own_size: whether the graph must serve the batch size of the example, if need be
    that one alone. trace: what is known of the model on this example.
    """
    given = (args, kwargs)
    if isinstance(model, ExportedProgram):
        return _with_batch(_read(model, model, given), batched)
    if not _tensors(given):
        raise ArgumentError(
            "capture needs example inputs: capture(model, x, ...) with the tensors that the model "
            "takes"
        )
    trace = trace or Trace(model, given)
    if batched is not False and not (own_size and trace.free_is_known):
        try:
            program = _export_with_free_batch(model, given)
            found = _with_batch(_read(model, program, given), batched)
            if _is_of_use(found[0], given, own_size):
                return found
        except MixedSamples as error:
            return _export_for_this_batch_alone(trace, error)
        except CaptureError as error:
            log.debug("no export with a free batch size: %s", error)
    return _with_batch(trace.as_given, batched)


def _is_of_use(graph: Graph, given: Arguments, own_size: bool) -> bool:
    """Whether a graph with free sizes has a free batch, and serves the example if it must."""
    inputs = _by_input(graph, given)
    return not _forgets_samples(graph, inputs) and (not own_size or _serves(graph, inputs))


def _export_for_this_batch_alone(trace: Trace, error: MixedSamples) -> Captured:
    """What serves no other batch size may still serve this one, if it is not one sample."""
    if all(len(tensor) < 2 for tensor in _tensors(trace.given) if tensor.dim()):
        raise error
    try:
        return _with_batch(trace.as_given, batched=True)
    except (MixedSamples, CaptureError):
        raise error from None


def _forgets_samples(graph: Graph, inputs: Examples) -> bool:
    """Whether only whole numbers have a free size, while real ones of the same example size are
    fixed: the batch is fixed then."""
    free = [inputs[name] for name in graph.sizes.symbols]
    if any(leaf.is_floating_point() for leaf in free):
        return False
    sizes = {len(leaf) for leaf in free}
    fixed = [leaf for name, leaf in inputs.items() if name not in graph.sizes.symbols]
    return any(
        leaf.dim() > 1 and leaf.is_floating_point() and len(leaf) in sizes
        for leaf in fixed
        if isinstance(leaf, Tensor)
    )


def _serves(graph: Graph, inputs: Examples) -> bool:
    """Whether nothing that was assumed of free sizes is broken by the example itself."""
    return graph.sizes.broken({name: len(inputs[name]) for name in graph.sizes.symbols}) is None


@dataclass(frozen=True, eq=False)
class _Read:
    """A program as a graph that has no batch yet."""

    program: ExportedProgram
    graph: Graph
    values: Values
    inputs: Examples


def _read(model: nn.Module | ExportedProgram, program: ExportedProgram, given: Arguments) -> _Read:
    if any(map(is_fake, program.constants.values())):
        raise CaptureError(DERIVATIVES_INSIDE)
    program = as_pairs(decompose(program))
    graph, values = read(program, _in_train_mode(model))
    graph = simplify(graph)
    inputs = _by_input(graph, given)
    graph = replace(
        graph,
        examples=values.examples(graph),
        literals={name: leaf for name, leaf in inputs.items() if not isinstance(leaf, Tensor)},
        sizes=values.sizes(graph),
    )
    return _Read(program, graph, values, inputs)


def _with_batch(found: _Read, batched: bool | None) -> Captured:
    """The graph with the batch in every node, if there is one."""
    program, graph = found.program, found.graph
    if batched is not False:
        trial = Trial(found.inputs, {**program.state_dict, **program.constants})
        graph = find_batch(graph, found.values, trial, batched)
    return graph, program.call_spec.in_spec, program.call_spec.out_spec


@dataclass(eq=False)
class Trace:
    """A model on one example. free_is_known: whether the graph with a free batch size is known
    already, and does not serve the example."""

    model: nn.Module
    given: Arguments
    free_is_known: bool = False

    @cached_property
    def as_given(self) -> _Read:
        """The graph for the sizes of the example."""
        return _read(self.model, _export_as_given(self.model, self.given), self.given)


def traced_sizes(given: Arguments) -> tuple[int, ...]:
    """The sizes of dimension 0 with which a free batch size is traced: a batch of one does not
    become free in torch.export, and is repeated."""
    sizes = tuple(len(leaf) for leaf in _tensors(given) if leaf.dim() > 0)
    if set(sizes) == {1}:
        return tuple(2 for _ in sizes)
    return sizes


def _in_train_mode(model: nn.Module | ExportedProgram) -> bool:
    """Whether a part of a model is in train mode."""
    if isinstance(model, ExportedProgram):
        return False
    parts = model.modules_used if isinstance(model, Function) else [model]
    return any(module.training for part in parts for module in part.modules())


# -- arguments -------------------------------------------------------------------------------------


def _tensors(given: Arguments) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor)]


def _by_input(graph: Graph, given: Arguments) -> Examples:
    """Input of the graph -> example."""
    leaves = pytree.tree_leaves(given, is_leaf=lambda leaf: leaf is None)
    return dict(zip(graph.inputs, leaves, strict=True))


def copies(args: tuple[object, ...], kwargs: dict[str, object], twice: bool = False) -> Arguments:
    """Example tensors as objects of their own: torch.export takes a buffer that is the same object
    for the input, and a model may write into its inputs. twice: every sample twice."""

    def copy(leaf: object) -> object:
        if not isinstance(leaf, Tensor):
            return leaf
        leaf = leaf.detach()
        if twice and leaf.dim() > 0:
            return torch.cat([leaf, leaf])
        return leaf.clone()

    return pytree.tree_map(copy, args), pytree.tree_map(copy, kwargs)


# -- torch.export ----------------------------------------------------------------------------------


def _export_with_free_batch(model: nn.Module, given: Arguments) -> ExportedProgram:
    """Export with a free batch size; CaptureError if the model does not allow it."""
    repeat = set(traced_sizes(given)) != {len(leaf) for leaf in _tensors(given) if leaf.dim() > 0}
    wide = copies(*given, twice=repeat)
    shapes = ShapesCollection()
    for tensor in _tensors(wide):
        if tensor.dim() > 0 and len(tensor) > 1:
            shapes[tensor] = {0: Dim.AUTO}
    program = _export(model, wide, shapes.dynamic_shapes(model, *wide))
    if not free_symbols(program):
        raise CaptureError("the model fixes its batch size")
    return program


def _export_as_given(model: nn.Module, given: Arguments) -> ExportedProgram:
    """Export with the sizes of the example. CaptureError says whose fault it is: the model runs on
    the example, or does not."""
    try:
        return _export(model, copies(*given), None)
    except CaptureError:
        run_itself(model, *copies(*given))
        raise


def _export(model: nn.Module, given: Arguments, dynamic_shapes: Any) -> ExportedProgram:
    args, kwargs = given
    modes = {name: module.training for name, module in model.named_modules()}
    around = (
        masks_as_given(), masks_out_of_place(), maps_recorded(), lists_of_weights(),
        parts_uncompiled(), quiet(), any_free_size(), returning_plain(model),
        gradients_if_possible([model]),
    )  # fmt: skip
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        for context in around:
            stack.enter_context(context)
        try:
            return torch.export.export(
                model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
        except CaptureError:  # of what the model returns
            raise
        except Exception as error:  # torch.export raises many types of its own
            raise CaptureError(_explain(error)) from error
        finally:
            assert modes == {name: module.training for name, module in model.named_modules()}


# -- messages --------------------------------------------------------------------------------------


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def _explain(error: Exception) -> str:
    kind = type(error).__name__
    text = _first_line(error)
    if "data-dependent" in str(error).lower() or "GuardOnDataDependent" in kind:
        return (
            "the model decides what to compute from the values of its tensors (data-dependent "
            f"control flow){_last_frame(error)}. "
            "Write the choice with torch.where, or fix it with a Python argument."
        )
    innermost = traceback.extract_tb(error.__traceback__)[-1].name
    if innermost == DERIVATIVES_AT or any(trace in str(error) for trace in DERIVATIVES):
        return DERIVATIVES_INSIDE
    if any(words in str(error) for words in SPARSE_WORDS):
        return UNREGISTERED
    return f"the model runs, but torch.export cannot read it: {kind}: {text}."


def _last_frame(error: Exception) -> str:
    """`` (file:line)`` of the innermost code that an error names; empty if it names none."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    if not frames:
        return ""
    path, line = frames[-1]
    return f" ({path}:{line})"
