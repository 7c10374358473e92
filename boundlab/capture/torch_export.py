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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, ShapesCollection, default_decompositions
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.nn.modules import transformer
from torch.utils import _pytree as pytree

from boundlab.capture import layouts
from boundlab.capture.patterns import fuse, one_part
from boundlab.errors import ArgumentError, CaptureError, MixedSamples
from boundlab.graph import Graph, Node, Origin, Ref, op_name
from boundlab.rules.registry import COMPOSITIONS, IDENTITIES, OWN

log = logging.getLogger("boundlab")
aten = torch.ops.aten

RECURRENT = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
"""Taken apart by torch's own decompositions into linear maps, gates and products."""
RANDOM = frozenset(
    (
        aten.native_dropout, aten.bernoulli, aten.rand_like, aten.randn_like, aten.randint_like, aten.rand, aten.randn, aten.randint,
        aten.randperm, aten.normal, aten.normal_functional, aten.uniform, aten.multinomial, aten.poisson, aten.exponential, aten.rrelu_with_noise,
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
    """The function under the name ``forward``: torch.export records the source lines of functions of that name only."""
    if not isinstance(function, types.FunctionType):

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return forward
    code = function.__code__.replace(co_name="forward", co_qualname="forward")
    renamed = types.FunctionType(code, function.__globals__, "forward", function.__defaults__, function.__closure__)
    renamed.__kwdefaults__ = function.__kwdefaults__
    return renamed


def _modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Modules that a function reads from around it or is bound to: their parameters can then be found by name."""
    around: list[Any] = [getattr(function, "__self__", None)]
    if isinstance(function, types.FunctionType):
        used = inspect.getclosurevars(function)
        around += [*used.nonlocals.values(), *used.globals.values()]
    return [thing for thing in around if isinstance(thing, nn.Module)]


def export(model: nn.Module | ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], batched: bool | None) -> tuple[Graph, Any, Any]:
    """The graph of ``model`` and the pytree specifications of its inputs and outputs.

    batched: True if dimension 0 of the tensor inputs must count samples, False if it must not, None to find out.
    """
    if isinstance(model, ExportedProgram):
        return _as_graph(model, args, kwargs, batched)
    _tensors(args, kwargs)
    if batched is not False:
        try:
            return _as_graph(_export_freely(model, args, kwargs), args, kwargs, batched)
        except layouts.FixedSize as error:
            try:
                return _as_graph(_export_as_given(model, args, kwargs), args, kwargs, batched=True)
            except MixedSamples:
                raise error from None
        except CaptureError as error:
            log.debug("no export with a free batch size: %s", error)
    return _as_graph(_export_as_given(model, args, kwargs), args, kwargs, batched)


def _as_graph(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], batched: bool | None) -> tuple[Graph, Any, Any]:
    program = _decompose(program)
    graph, dims, symbolic = _read(program)
    graph = _simplify(graph)
    leaves = pytree.tree_leaves((args, kwargs))
    literals = {name: leaf for name, leaf in zip(graph.inputs, leaves, strict=True) if not isinstance(leaf, Tensor)}
    graph = replace(graph, examples=_examples(graph, program, symbolic), literals=literals)
    if batched is not False:
        graph = _find_batch(graph, program, args, kwargs, dims, symbolic, batched)
    return graph, program.call_spec.in_spec, program.call_spec.out_spec


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if not tensors:
        raise ArgumentError("capture needs example inputs: capture(model, x, ...) with the tensors that the model takes")
    return tensors


def _export_freely(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    """Export with a free batch size; CaptureError if the model does not allow it."""
    # A batch of one does not become free in torch.export: repeat it.
    repeat = {leaf.shape[0] for leaf in _tensors(args, kwargs) if leaf.dim() > 0} == {1}
    wide_args, wide_kwargs = _copied(args, kwargs, repeat)
    shapes = ShapesCollection()
    for tensor in _tensors(wide_args, wide_kwargs):
        if tensor.dim() > 0 and tensor.shape[0] > 1:
            shapes[tensor] = {0: Dim.AUTO}
    program = _export(model, wide_args, wide_kwargs, shapes.dynamic_shapes(model, wide_args, wide_kwargs))
    if not _free_symbols(program):
        raise CaptureError("the model fixes its batch size")
    return program


def _export_as_given(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    """Export with the sizes of the example."""
    return _export(model, *_copied(args, kwargs, repeat=False), None)


def _copied(args: tuple[Any, ...], kwargs: dict[str, Any], repeat: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example tensors as objects of their own: torch.export takes a buffer that is the same object for the input."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        leaf = leaf.detach()
        return torch.cat([leaf, leaf]) if repeat and leaf.dim() > 0 else leaf.clone()

    return pytree.tree_map(widen, args), pytree.tree_map(widen, kwargs)


def _export(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> ExportedProgram:
    modes = {name: module.training for name, module in model.named_modules()}
    with warnings.catch_warnings(), _masks_as_given(), _quiet():
        warnings.simplefilter("ignore")
        try:
            return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        except Exception as error:  # torch.export raises many types of its own
            raise CaptureError(_explain(error)) from error
        finally:
            assert modes == {name: module.training for name, module in model.named_modules()}


@contextmanager
def _masks_as_given() -> Iterator[None]:
    """nn.TransformerEncoder looks into a mask to see whether it is causal, only to pick a faster kernel; torch.export takes
    that for control flow that depends on data. The mask itself is applied either way."""
    original = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = original


@contextmanager
def _quiet() -> Iterator[None]:
    """torch logs a failed attempt as an error; ours becomes an exception, or another attempt."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _explain(error: Exception) -> str:
    text = str(error).strip().split("\n")[0]
    if "data-dependent" in str(error).lower() or "GuardOnDataDependent" in type(error).__name__:
        line = re.findall(r'File "([^"]+)", line (\d+)', str(error))
        where = f" ({line[-1][0]}:{line[-1][1]})" if line else ""
        return (
            f"the model decides what to compute from the values of its tensors (data-dependent control flow){where}: {text}. "
            "Write the choice with torch.where, or fix it with a Python argument."
        )
    return f"torch.export could not read the model: {type(error).__name__}: {text}. Check first that model(*inputs) runs with these inputs."


def _decompose(program: ExportedProgram) -> ExportedProgram:
    """Take apart what a composition, or torch for recurrent layers, expresses in simpler operators; leave the rest whole."""
    defaults = default_decompositions()
    table = {op: defaults[op] for op in RECURRENT if op in defaults}
    table.update(COMPOSITIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program.run_decompositions(table)


def _free_symbols(program: ExportedProgram) -> set[Any]:
    found: set[Any] = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, Tensor) and value.dim():
            found |= _symbols(value.shape[0])
    return found


def _symbols(size: Any) -> set[Any]:
    return set(size.node.expr.free_symbols) if isinstance(size, torch.SymInt) else set()


def _read(program: ExportedProgram) -> tuple[Graph, dict[str, list[int]], set[str]]:
    """The fx graph as ours, the dimensions that carry a symbol for each node, and the inputs whose dimension 0 does."""
    signature = program.graph_signature
    kinds = {spec.arg.name: spec for spec in signature.input_specs}
    outputs = [spec for spec in signature.output_specs if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)]
    inputs: list[str] = []
    parameters: dict[str, str] = {}
    constants: dict[str, Any] = {}
    nodes: dict[str, Node] = {}
    dims: dict[str, list[int]] = {}
    symbolic: set[str] = set()
    several: dict[str, Any] = {}

    def convert(leaf: Any) -> Any:
        return Ref(leaf.name) if isinstance(leaf, torch.fx.Node) else leaf

    for fx in program.graph.nodes:
        value = fx.meta.get("val")
        if getattr(fx.target, "overloadpacket", None) in RANDOM:
            raise CaptureError(
                f"{op_name(fx.target)} ({_origin(fx)}) is random, so the outputs have no bounds: "
                "put the model in eval mode (model.eval()) before capturing it"
            )
        if isinstance(value, Tensor):
            dims[fx.name] = [i for i, size in enumerate(value.shape) if _symbols(size)]
        else:
            dims[fx.name] = []
        if fx.op == "placeholder":
            spec = kinds[fx.name]
            if spec.kind == InputKind.USER_INPUT:
                inputs.append(fx.name)
                if dims[fx.name] == [0]:
                    symbolic.add(fx.name)
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
                nodes[fx.name] = replace(several[source], name=fx.name, output=int(args[1]), origin=_origin(fx))
            else:
                op = OWN.get(fx.target, fx.target)
                node = Node(fx.name, op, tuple(args), dict(fx_kwargs), origin=_origin(fx))
                if isinstance(value, (tuple, list)):
                    several[fx.name] = node
                nodes[fx.name] = node
    results = tuple(Ref(spec.arg.name) if isinstance(spec.arg, TensorArgument) else getattr(spec.arg, "value", None) for spec in outputs)
    return Graph(nodes, tuple(inputs), parameters, constants, results, batched=False), dims, symbolic


def _examples(graph: Graph, program: ExportedProgram, symbolic: set[str]) -> dict[str, tuple[tuple[int, ...], Any, bool]]:
    found: dict[str, tuple[tuple[int, ...], Any, bool]] = {}
    for fx in program.graph.nodes:
        value = fx.meta.get("val")
        if fx.name in graph.inputs and isinstance(value, Tensor):
            free = fx.name in symbolic
            found[fx.name] = tuple(0 if _symbols(n) else int(n) for n in value.shape), value.dtype, free
    return found


def _origin(fx: torch.fx.Node) -> Origin:
    stack = list((fx.meta.get("nn_module_stack") or {}).values())
    module = str(stack[-1][0]) if stack and not str(stack[-1][0]).startswith("_empty") else ""
    frames = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', fx.meta.get("stack_trace") or "")
    own = [frame for frame in frames if "/torch/" not in frame[0]] or frames
    line = f"{own[-1][0].rsplit('/', 1)[-1]}:{own[-1][1]}: {own[-1][2].strip()}" if own else ""
    return Origin(module, line)


def _simplify(graph: Graph) -> Graph:
    """Drop what the outputs do not need and what only copies; read a product of a node with itself as a square."""
    same: dict[str, str] = {}

    def rename(leaf: Any) -> Any:
        return Ref(same.get(leaf.name, leaf.name)) if isinstance(leaf, Ref) else leaf

    nodes: dict[str, Node] = {}
    for node in graph.nodes.values():
        args = pytree.tree_map(rename, node.args)
        kwargs = pytree.tree_map(rename, dict(node.kwargs))
        if node.op in IDENTITIES and isinstance(args[0], Ref):
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
    needed = graph.ancestors(tuple(o.name for o in outputs if isinstance(o, Ref))) | set(graph.inputs)
    kept = {name: node for name, node in nodes.items() if name in needed}
    parameters = {name: path for name, path in graph.parameters.items() if name in kept}
    constants = {name: value for name, value in graph.constants.items() if name in kept}
    return replace(graph, nodes=kept, parameters=parameters, constants=constants)


def _find_batch(
    graph: Graph,
    program: ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dims: Mapping[str, list[int]],
    symbolic: set[str],
    batched: bool | None,
) -> Graph:
    """Put a layout on every node that carries samples, or leave the graph without a batch."""
    leaves = pytree.tree_leaves((args, kwargs), is_leaf=lambda leaf: leaf is None)
    examples = dict(zip(graph.inputs, leaves, strict=True))
    state = {**program.state_dict, **program.constants}
    fixed: dict[str, Any] = {name: state[path] for name, path in graph.parameters.items()} | dict(graph.constants)
    if symbolic:
        free = {name: torch.cat([examples[name][:1]] * 3).detach() for name in symbolic}
        others = {name: value for name, value in examples.items() if name not in symbolic}
        with torch.no_grad():
            return layouts.assign(graph, {**fixed, **others, **free}, symbolic, 3, dims)
    sizes = {leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() > 1}
    if len(sizes) != 1:
        if batched:
            raise CaptureError(f"batched=True, but the inputs do not agree on a batch size: {sorted(sizes)}")
        return graph
    samples = sizes.pop()
    carriers = {name for name, value in examples.items() if isinstance(value, Tensor) and value.dim() > 1}
    try:
        with torch.no_grad():
            found = layouts.assign(graph, {**fixed, **examples}, carriers, samples, None)
        ends = [found.nodes[o.name] for o in found.outputs if isinstance(o, Ref)]
        if all(end.layout is not None and end.layout.dim == 0 for end in ends):
            log.warning("the model fixes its batch size: bounds can be asked for batches of %d samples only", samples)
            return found
    except MixedSamples:
        if batched:
            raise
    log.info("the model has no free batch size: its inputs count as one sample")
    return graph
