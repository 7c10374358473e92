"""The PyTorch front end: ``torch.export`` to our graph.

Everything that knows about torch.export stands in this file.
"""

from __future__ import annotations

import inspect
import logging
import operator
import re
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, ShapesCollection, default_decompositions
from torch.export.graph_signature import InputKind, OutputKind

from boundlab.capture import layouts
from boundlab.capture.patterns import fuse, one_part
from boundlab.compat.private import (
    any_free_size,
    guards,
    masks_as_given,
    pytree,
    quiet,
    size_expression,
)
from boundlab.errors import ArgumentError, BoundlabError, CaptureError, MixedSamples
from boundlab.graph.graph import Graph, Node, Origin, Ref, op_name
from boundlab.graph.sizes import Sizes
from boundlab.rules.casts import cut_off, keeps_values, rounded, rounded_in_place
from boundlab.rules.registry import COMPOSITIONS, IDENTITIES, OWN

log = logging.getLogger("boundlab")
aten = torch.ops.aten

RECURRENT = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
"""Taken apart by torch's own decompositions into linear maps, gates and products."""
RANDOM = frozenset(
    (
        aten.native_dropout, aten.bernoulli, aten.rand_like, aten.randn_like, aten.randint_like,
        aten.rand, aten.randn, aten.randint,
        aten.randperm, aten.normal, aten.normal_functional, aten.uniform, aten.multinomial,
        aten.poisson, aten.exponential, aten.rrelu_with_noise,
    )
)  # fmt: skip
"""Operators that draw random numbers."""

VIEWS = frozenset((aten.view.default, aten._unsafe_view.default))


class Function(nn.Module):
    """A plain callable as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = _as_forward(function)
        self.modules_used = nn.ModuleList(_modules_of(function))


def _as_forward(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under the name ``forward``: torch.export records the source lines of functions
    of that name only."""
    if not isinstance(function, types.FunctionType):

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return forward
    code = function.__code__.replace(co_name="forward", co_qualname="forward")
    renamed = types.FunctionType(
        code, function.__globals__, "forward", function.__defaults__, function.__closure__
    )
    renamed.__kwdefaults__ = function.__kwdefaults__
    return renamed


def _modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Modules that a function reads from around it or is bound to: their parameters can then be
    found by name."""
    around: list[Any] = [getattr(function, "__self__", None)]
    if isinstance(function, types.FunctionType):
        used = inspect.getclosurevars(function)
        around += [*used.nonlocals.values(), *used.globals.values()]
    return [thing for thing in around if isinstance(thing, nn.Module)]


def export(
    model: nn.Module | ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    batched: bool | None,
    own_size: bool = False,
) -> tuple[Graph, Any, Any]:
    """The graph of ``model`` and the pytree specifications of its inputs and outputs.

    batched: True if dimension 0 of the tensor inputs must count samples, False if it must not, None
    to find out. own_size: whether the graph must serve the batch size of the example, if need be
    that one alone.
    """
    if isinstance(model, ExportedProgram):
        return _as_graph(model, args, kwargs, batched)
    _tensors(args, kwargs)
    if batched is not False:
        try:
            found = _as_graph(_export_freely(model, args, kwargs), args, kwargs, batched)
            if not _forgets_samples(found[0], args, kwargs) and (
                not own_size or _serves(found[0], args, kwargs)
            ):
                return found
        except MixedSamples as error:  # what serves no other batch size may still serve this one
            if all(tensor.shape[0] < 2 for tensor in _tensors(args, kwargs) if tensor.dim()):
                raise
            try:
                return _as_graph(_export_as_given(model, args, kwargs), args, kwargs, batched=True)
            except (MixedSamples, CaptureError):
                raise error from None
        except CaptureError as error:
            log.debug("no export with a free batch size: %s", error)
    return _as_graph(_export_as_given(model, args, kwargs), args, kwargs, batched)


def _forgets_samples(graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether only whole numbers have a free size, while real ones of the same example size are
    fixed: the batch is fixed then."""
    leaves = dict(
        zip(
            graph.inputs,
            pytree.tree_leaves((args, kwargs), is_leaf=lambda leaf: leaf is None),
            strict=True,
        )
    )
    free = [leaves[name] for name in graph.sizes.symbols]
    fixed = [
        leaf
        for name, leaf in leaves.items()
        if isinstance(leaf, Tensor) and name not in graph.sizes.symbols and leaf.dim() > 1
    ]
    sizes = {len(leaf) for leaf in free}
    return not any(leaf.is_floating_point() for leaf in free) and any(
        leaf.is_floating_point() and len(leaf) in sizes for leaf in fixed
    )


def _serves(graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether nothing that was assumed of free sizes is broken by the example itself."""
    leaves = dict(
        zip(
            graph.inputs,
            pytree.tree_leaves((args, kwargs), is_leaf=lambda leaf: leaf is None),
            strict=True,
        )
    )
    return graph.sizes.broken({name: leaves[name].shape[0] for name in graph.sizes.symbols}) is None


def _as_graph(
    program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], batched: bool | None
) -> tuple[Graph, Any, Any]:
    program = _decompose(program)
    graph, traced = _read(program)
    graph = _simplify(graph)
    leaves = pytree.tree_leaves((args, kwargs))
    literals = {
        name: leaf
        for name, leaf in zip(graph.inputs, leaves, strict=True)
        if not isinstance(leaf, Tensor)
    }
    sizes = Sizes(
        traced.free,
        tuple(traced.assumptions),
        {name: traced.numbers[name] for name in graph.nodes if name in traced.numbers},
    )
    graph = replace(graph, examples=_examples(graph, traced), literals=literals, sizes=sizes)
    if batched is not False:
        graph = _find_batch(graph, program, args, kwargs, traced, batched)
    return graph, program.call_spec.in_spec, program.call_spec.out_spec


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if not tensors:
        raise ArgumentError(
            "capture needs example inputs: capture(model, x, ...) with the tensors that the model "
            "takes"
        )
    return tensors


def _export_freely(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ExportedProgram:
    """Export with a free batch size; CaptureError if the model does not allow it."""
    # A batch of one does not become free in torch.export: repeat it.
    repeat = {leaf.shape[0] for leaf in _tensors(args, kwargs) if leaf.dim() > 0} == {1}
    wide_args, wide_kwargs = copies(args, kwargs, repeat)
    shapes = ShapesCollection()
    for tensor in _tensors(wide_args, wide_kwargs):
        if tensor.dim() > 0 and tensor.shape[0] > 1:
            shapes[tensor] = {0: Dim.AUTO}
    program = _export(
        model, wide_args, wide_kwargs, shapes.dynamic_shapes(model, wide_args, wide_kwargs)
    )
    if not _free_symbols(program):
        raise CaptureError("the model fixes its batch size")
    return program


def _export_as_given(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ExportedProgram:
    """Export with the sizes of the example."""
    return _export(model, *copies(args, kwargs), None)


def copies(
    args: tuple[Any, ...], kwargs: dict[str, Any], twice: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example tensors as objects of their own: torch.export takes a buffer that is the same object
    for the input, and a model may write into its inputs. twice: every sample twice."""

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        leaf = leaf.detach()
        return torch.cat([leaf, leaf]) if twice and leaf.dim() > 0 else leaf.clone()

    return pytree.tree_map(copy, args), pytree.tree_map(copy, kwargs)


def _export(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    modes = {name: module.training for name, module in model.named_modules()}
    with warnings.catch_warnings(), masks_as_given(), quiet(), any_free_size():
        warnings.simplefilter("ignore")
        try:
            return torch.export.export(
                model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
        except Exception as error:  # torch.export raises many types of its own
            raise CaptureError(_explain(error)) from error
        finally:
            assert modes == {name: module.training for name, module in model.named_modules()}


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _explain(error: Exception) -> str:
    text = _first_line(error)
    if "data-dependent" in str(error).lower() or "GuardOnDataDependent" in type(error).__name__:
        line = re.findall(r'File "([^"]+)", line (\d+)', str(error))
        where = f" ({line[-1][0]}:{line[-1][1]})" if line else ""
        return (
            "the model decides what to compute from the values of its tensors (data-dependent "
            f"control flow){where}: {text}. "
            "Write the choice with torch.where, or fix it with a Python argument."
        )
    return (
        f"torch.export could not read the model: {type(error).__name__}: {text}. Check first "
        "that model(*inputs) runs with these inputs."
    )


def _decompose(program: ExportedProgram) -> ExportedProgram:
    """Take apart what a composition, or torch for recurrent layers, expresses in simpler operators;
    leave the rest whole.

    Compositions may order their results in memory otherwise than the operator does, so that a
    recorded view would not fit: views become reshapes first.
    """
    defaults = default_decompositions()
    table = {op: defaults[op] for op in RECURRENT if op in defaults}
    table.update(COMPOSITIONS)
    for fx in program.graph.nodes:
        if fx.target in VIEWS:
            fx.target = aten.reshape.default
    with warnings.catch_warnings(), any_free_size():
        warnings.simplefilter("ignore")
        try:
            return program.run_decompositions(table)
        except BoundlabError:
            raise
        except Exception as error:  # whatever a composition raises
            raise CaptureError(
                f"the model could not be written in simpler operators: {type(error).__name__}: "
                f"{_first_line(error)}"
            ) from error


def _free_symbols(program: ExportedProgram) -> set[Any]:
    found: set[Any] = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, Tensor) and value.dim():
            found |= size_expression(value.shape[0]).free_symbols
    return found


@dataclass(frozen=True, eq=False)
class Traced:
    """What torch.export knows of the values in its graph. ``shapes``: of tensors, ``numbers``:
    integers that are made from shapes, both as expressions of free sizes; ``dtypes``; ``free``: the
    inputs whose dimension 0, and nothing else, is free, and its symbol; ``assumptions``: relations
    between free sizes that decided what was traced."""

    shapes: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    assumptions: list[Any] = field(default_factory=list)

    def note(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self.shapes[name] = tuple(size_expression(size) for size in value.shape)
            self.dtypes[name] = value.dtype
        elif isinstance(value, (int, torch.SymInt)):
            self.numbers[name] = size_expression(value)

    def with_samples(self, samples: int) -> layouts.Shapes:
        """Shapes and numbers for a batch: every free size is ``samples``."""
        free = set(self.free.values())
        tensors, odd = {}, set()
        for name, shape in self.shapes.items():
            sizes = [_multiple(size, free, samples) for size in shape]
            tensors[name] = tuple(0 if size is None else size for size in sizes)
            if None in sizes:
                odd.add(name)
        found = {name: _multiple(number, free, samples) for name, number in self.numbers.items()}
        numbers = {name: number for name, number in found.items() if number is not None}
        masks = frozenset(name for name, dtype in self.dtypes.items() if dtype == torch.bool)
        return layouts.Shapes(samples, tensors, numbers, masks, frozenset(odd))


def _multiple(size: Any, free: set[Any], samples: int) -> int | None:
    """A size that is a number, or a number times a free size; None for other expressions. A size
    that depends on values, but not on the batch, is some number."""
    if size.free_symbols and not size.free_symbols & free:
        return SOME
    factor = size
    for symbol in size.free_symbols:
        factor = sympy.cancel(size / symbol)
        if symbol not in free or factor.free_symbols:
            return None
    return int(factor) * (samples if size.free_symbols else 1)


def _read(program: ExportedProgram) -> tuple[Graph, Traced]:
    """The fx graph as ours, and what is known of its values."""
    signature = program.graph_signature
    kinds = {spec.arg.name: spec for spec in signature.input_specs}
    outputs = [
        spec
        for spec in signature.output_specs
        if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
    ]
    inputs: list[str] = []
    parameters: dict[str, str] = {}
    constants: dict[str, Any] = {}
    nodes: dict[str, Node] = {}
    several: dict[str, Any] = {}
    traced = Traced()

    def convert(leaf: Any) -> Any:
        return Ref(leaf.name) if isinstance(leaf, torch.fx.Node) else leaf

    for fx in program.graph.nodes:
        value = fx.meta.get("val")
        traced.note(fx.name, value)
        if getattr(fx.target, "overloadpacket", None) in RANDOM:
            raise CaptureError(
                f"{op_name(fx.target)} ({_origin(fx)}) is random, so the outputs have no bounds: "
                "put the model in eval mode (model.eval()) before capturing it"
            )
        if fx.op == "placeholder":
            spec = kinds[fx.name]
            if spec.kind == InputKind.USER_INPUT:
                inputs.append(fx.name)
                shape = traced.shapes.get(fx.name, ())
                if (
                    shape
                    and shape[0].is_Symbol
                    and not any(size.free_symbols for size in shape[1:])
                ):
                    traced.free[fx.name] = shape[0]
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                parameters[fx.name] = str(spec.target)
            else:
                constants[fx.name] = program.constants[str(spec.target)]
            nodes[fx.name] = Node(fx.name)
        elif fx.op == "get_attr":
            constants[fx.name] = getattr(program.graph_module, str(fx.target))
            nodes[fx.name] = Node(fx.name)
        elif fx.op == "call_function":
            args = torch.fx.node.map_aggregate(fx.args, convert)
            fx_kwargs = torch.fx.node.map_aggregate(fx.kwargs, convert)
            source = args[0].name if args and isinstance(args[0], Ref) else ""
            if fx.target is operator.getitem and source in several:
                nodes[fx.name] = replace(
                    several[source], name=fx.name, output=int(args[1]), origin=_origin(fx)
                )
            else:
                op = OWN.get(fx.target, fx.target)
                node = Node(fx.name, op, tuple(args), dict(fx_kwargs), origin=_origin(fx))
                node = _cast(_summed_as(_squeezed(node, traced), nodes, traced), nodes, traced)
                if isinstance(value, (tuple, list)):
                    several[fx.name] = node
                nodes[fx.name] = node
    traced.assumptions.extend(_assumptions(program, set(traced.free.values())))
    results = tuple(
        Ref(spec.arg.name) if spec.arg.name in nodes else getattr(spec.arg, "value", None)
        for spec in outputs
    )
    return Graph(nodes, tuple(inputs), parameters, constants, results, batched=False), traced


def _squeezed(node: Node, traced: Traced) -> Node:
    """A squeeze with its dimensions written out: whether it drops a free one too depends on the
    batch size, and is assumed not to."""
    if node.op not in (aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims):
        return node
    shape = traced.shapes[node.args[0].name]
    given = node.args[1] if len(node.args) > 1 else list(range(len(shape)))
    dims = [
        dim % max(len(shape), 1) for dim in (given if isinstance(given, (list, tuple)) else [given])
    ]
    traced.assumptions.extend(
        sympy.Ne(shape[dim], 1) for dim in dims if shape and shape[dim].free_symbols
    )
    return replace(
        node,
        op=aten.squeeze.dims,
        args=(node.args[0], [dim for dim in dims if shape and shape[dim] == 1]),
    )


SUMS = (
    aten.sum.dim_IntList,
    aten.sum.default,
    aten.mean.dim,
    aten.mean.default,
    aten.cumsum.default,
)


def _summed_as(node: Node, nodes: dict[str, Node], traced: Traced) -> Node:
    """A sum of values that are converted first, as a cast and a plain sum."""
    dtype = node.kwargs.get("dtype")
    if node.op not in SUMS or dtype is None or dtype == traced.dtypes[node.args[0].name]:
        return node
    source, name = node.args[0].name, f"{node.name}_of"
    traced.shapes[name], traced.dtypes[name] = traced.shapes[source], dtype
    cast = Node(name, aten._to_copy.default, (Ref(source),), {"dtype": dtype}, origin=node.origin)
    nodes[name] = _cast(cast, nodes, traced)
    kwargs = {key: value for key, value in node.kwargs.items() if key != "dtype"}
    return replace(node, args=(Ref(name), *node.args[1:]), kwargs=kwargs)


CASTS = (aten._to_copy, aten.to, aten.type_as)


def _cast(node: Node, nodes: dict[str, Node], traced: Traced) -> Node:
    """A cast that rounds or cuts off under a name of its own; one that goes back at once where it
    came from as one step."""
    if getattr(node.op, "overloadpacket", None) not in CASTS:
        return node
    (source, *_), target = node.args, traced.dtypes[node.name]
    dtype, where = (
        traced.dtypes[source.name],
        {"device": node.kwargs["device"]} if "device" in node.kwargs else {},
    )
    if not keeps_values(dtype, target):
        return replace(
            node,
            op=rounded if target.is_floating_point else cut_off,
            args=(source,),
            kwargs={"dtype": target, **where},
        )
    before = nodes[source.name]
    if (
        before.op is rounded
        and not where
        and not before.kwargs.keys() - {"dtype"}
        and traced.dtypes[before.args[0].name] == target
    ):
        return replace(node, op=rounded_in_place, args=before.args, kwargs={"dtype": dtype})
    return node


def _assumptions(program: ExportedProgram, free: set[Any]) -> list[Any]:
    """The relations between free sizes that tracing met and took for true; those with sizes that
    depend on values say nothing of the inputs."""
    values = (fx.meta.get("val") for fx in program.graph.nodes if fx.op == "placeholder")
    sizes: list[Any] = [
        size
        for value in values
        if isinstance(value, Tensor)
        for size in value.shape
        if isinstance(size, torch.SymInt)
    ]
    found = {relation for size in sizes for relation in guards(size)}
    for symbol, span in program.range_constraints.items():
        found |= {symbol >= span.lower} if span.lower > 2 else set()
        found |= {symbol <= span.upper} if isinstance(span.upper, sympy.Integer) else set()
    return sorted(
        (
            relation
            for relation in found
            if relation != sympy.true and relation.free_symbols <= free
        ),
        key=str,
    )


def _examples(graph: Graph, traced: Traced) -> dict[str, tuple[tuple[int, ...], Any, bool]]:
    found: dict[str, tuple[tuple[int, ...], Any, bool]] = {}
    for name in graph.inputs:
        if name in traced.shapes:
            shape = tuple(0 if size.free_symbols else int(size) for size in traced.shapes[name])
            found[name] = shape, traced.dtypes[name], name in traced.free
    return found


def _origin(fx: torch.fx.Node) -> Origin:
    stack = list((fx.meta.get("nn_module_stack") or {}).values())
    module = str(stack[-1][0]) if stack and not str(stack[-1][0]).startswith("_empty") else ""
    frames = re.findall(
        r'File "([^"]+)", line (\d+), in '
        r"[^\n]*\n\s*([^\n]*)",
        fx.meta.get("stack_trace") or "",
    )
    own = [frame for frame in frames if "/torch/" not in frame[0]] or frames
    line = f"{own[-1][0].rsplit('/', 1)[-1]}:{own[-1][1]}: {own[-1][2].strip()}" if own else ""
    return Origin(module, line)


def _takes_all(node: Node) -> bool:
    """Whether a node is a slice of everything, as ``x[:, 0]`` leaves one behind."""
    if node.op is not aten.slice.Tensor or node.kwargs:
        return False
    start, end, step = (list(node.args[2:]) + [None, None, 1][len(node.args) - 2 :])[:3]
    return (
        start in (None, 0)
        and (end is None or (isinstance(end, int) and end == 2**63 - 1))
        and step == 1
    )


def _simplify(graph: Graph) -> Graph:
    """Drop what the outputs do not need and what only copies; read a product of a node with itself
    as a square."""
    same: dict[str, str] = {}

    def rename(leaf: Any) -> Any:
        return Ref(same.get(leaf.name, leaf.name)) if isinstance(leaf, Ref) else leaf

    nodes: dict[str, Node] = {}
    for node in graph.nodes.values():
        args = pytree.tree_map(rename, node.args)
        kwargs = pytree.tree_map(rename, dict(node.kwargs))
        if (node.op in IDENTITIES or _takes_all(node)) and isinstance(args[0], Ref):
            same[node.name] = args[0].name
            continue
        if node.op is aten.mul.Tensor and isinstance(args[0], Ref) and args[0] == args[1]:
            node, args, kwargs = replace(node, op=aten.pow.Tensor_Scalar), (args[0], 2), {}
        if node.op in VIEWS:  # copies are gone, so strides may not allow a view
            node = replace(node, op=aten.reshape.default)
        nodes[node.name] = fuse(one_part(replace(node, args=args, kwargs=kwargs)), nodes)
    outputs = tuple(rename(output) for output in graph.outputs)
    modules: dict[str, str] = {}
    for node in graph.nodes.values():
        if node.origin.module:
            modules[node.origin.module] = same.get(node.name, node.name)
    graph = replace(graph, nodes=nodes, outputs=outputs, aliases=dict(same), modules=modules)
    needed = graph.ancestors(tuple(o.name for o in outputs if isinstance(o, Ref))) | set(
        graph.inputs
    )
    kept = {name: node for name, node in nodes.items() if name in needed}
    parameters = {name: path for name, path in graph.parameters.items() if name in kept}
    constants = {name: value for name, value in graph.constants.items() if name in kept}
    return replace(graph, nodes=kept, parameters=parameters, constants=constants)


SOME = 999_983
"""Stands for a size that is not known: a prime that no other size is a multiple of."""
MANY = 1_000_003
"""Stands for a free batch size: a prime that no other size is a multiple of."""


def _find_batch(
    graph: Graph,
    program: ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    traced: Traced,
    batched: bool | None,
) -> Graph:
    """Put a layout on every node that carries samples, or leave the graph without a batch."""
    leaves = pytree.tree_leaves((args, kwargs), is_leaf=lambda leaf: leaf is None)
    examples = dict(zip(graph.inputs, leaves, strict=True))
    if traced.free:
        graph = replace(graph, counts_samples=_counts_samples(graph, traced))
        return _with_layouts(graph, program, traced.with_samples(MANY), set(traced.free), examples)
    sizes = {leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() > 1}
    if len(sizes) != 1:
        if batched:
            raise CaptureError(
                f"batched=True, but the inputs do not agree on a batch size: {sorted(sizes)}"
            )
        return graph
    samples = sizes.pop()
    carriers = {
        name for name, value in examples.items() if isinstance(value, Tensor) and value.dim() > 1
    }
    try:
        found = _with_layouts(graph, program, traced.with_samples(samples), carriers, examples)
        ends = [found.nodes[o.name] for o in found.outputs if isinstance(o, Ref)]
        if all(end.layout is not None and end.layout.dim == 0 for end in ends):
            return found
    except MixedSamples:
        if batched:
            raise
    log.info("the model has no free batch size: its inputs count as one sample")
    return graph


def _with_layouts(
    graph: Graph,
    program: ExportedProgram,
    shapes: layouts.Shapes,
    batched: set[str],
    examples: dict[str, Any],
) -> Graph:
    found = layouts.assign(graph, shapes, batched)
    if layouts.vouched(found):
        state = {**program.state_dict, **program.constants}
        fixed = {name: state[path] for name, path in graph.parameters.items()} | dict(
            graph.constants
        )
        alone = shapes.samples == MANY and {len(examples[name]) for name in batched} == {1}
        wide = {name: torch.cat([examples[name]] * 2) for name in batched} if alone else {}
        with torch.no_grad():
            layouts.try_out(found, found.run({**fixed, **examples, **wide}))
    return found


SIZED = frozenset(
    (
        aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unflatten.int,
        aten.expand.default, aten.broadcast_to.default,
        aten.zeros.default, aten.ones.default, aten.empty.memory_format, aten.new_zeros.default,
        aten.new_ones.default, aten.new_empty.default,
    )
)  # fmt: skip
"""Operators that take a shape, and nothing else that could be a number."""


def _counts_samples(graph: Graph, traced: Traced) -> bool:
    """Whether a number that depends on a free size is used for anything but a shape."""
    counts = {name for name, number in traced.numbers.items() if number.free_symbols}
    readers = [
        node
        for node in graph.nodes.values()
        if node.name in traced.shapes and counts & set(node.inputs)
    ]
    return any(node.op not in SIZED for node in readers)
