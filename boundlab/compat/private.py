"""All private interfaces of torch that boundlab uses: names with an underscore, and objects without
documentation. No other file of the package knows any.

Every part says why it is needed and what breaks without it; ``tests/compat/test_private.py`` has a
test of each, so that a version of torch that changes one fails there first, and by name.
"""

from __future__ import annotations

import builtins
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import sympy
import torch
from torch import Tensor, nn
from torch._C import DispatchKey
from torch._decomp import decompositions as _decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo import config as _dynamo
from torch._export import utils as _export_utils
from torch._functorch import eager_transforms as _transforms
from torch._functorch import vmap as _vmap
from torch._ops import OpOverload
from torch._subclasses import fake_impls as _fake_impls
from torch._subclasses import fake_tensor as _fake_tensor
from torch.compiler import set_stance
from torch.export import _trace
from torch.fx.experimental import _config as _symbolic_shapes
from torch.fx.experimental import proxy_tensor as _proxies
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.modules import transformer as _transformer
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

__all__ = [
    "OpOverload",
    "TorchDispatchMode",
    "any_free_size",
    "backward_pass",
    "free_sizes_computed",
    "guards",
    "is_fake",
    "is_pointwise",
    "is_traced",
    "lists_of_weights",
    "maps_recorded",
    "masks_as_given",
    "masks_out_of_place",
    "op_arguments",
    "operators_listed_once",
    "own_buffers",
    "own_parameters",
    "parts_uncompiled",
    "pytree",
    "qualified_name",
    "quiet",
    "size_expression",
    "states_in_shape",
    "trace_by",
    "version",
    "will_execute",
]

VERSION = tuple(int(number) for number in torch.__version__.split(".")[:2])
"""That of torch, without its last number."""

# ``pytree``: torch.export describes the inputs and outputs of a program by trees of this module, so
# arguments have to be taken apart by the same one. Without it no model with nested inputs or
# outputs could be captured, and ``capture`` could not return what the model returns.

# ``OpOverload``: the type of ``torch.ops.aten.add.Tensor``, which tells torch's operators from
# plain functions. Without it nothing would be known about tags and namespaces of operators, and
# files could not be checked for the operators that they name.

# ``TorchDispatchMode``: benchmarks count the operators that a call runs, and load_onnx refuses
# files whose constants are too large on the way.


# -- operators -------------------------------------------------------------------------------------


def op_arguments(op: Any) -> Sequence[Any]:
    """The arguments in the schema of an operator; each has ``name``, ``kwarg_only`` and
    ``default_value``.

    Needed to find an argument by its name, whether it was given by place, by name or not at all.
    There is no public way to the schema. Without it the samples of a batch could not be followed.
    """
    found: Sequence[Any] = op._schema.arguments
    return found


UNMARKED = frozenset((torch.ops.aten.leaky_relu.default, torch.ops.aten.ldexp.Tensor))
"""Pointwise operators that torch 2.6 and 2.10 do not mark as such; torch 2.13 does."""


def is_pointwise(op: object) -> bool:
    """Whether an operator acts on each element alone, as far as torch says.

    Nothing else is known of how most such operators treat the samples of a batch.
    """
    return isinstance(op, OpOverload) and (torch.Tag.pointwise in op.tags or op in UNMARKED)


def qualified_name(packet: object) -> str | None:
    """``aten::add`` of the packet ``torch.ops.aten.add``; None for other functions.

    Messages and ``boundlab ops`` name operators as users know them; without it they would show
    ``add`` for every namespace.
    """
    found: str | None = getattr(packet, "_qualified_op_name", None)
    return found


# -- tensors and modules ---------------------------------------------------------------------------


def version(tensor: Tensor) -> int:
    """How often a tensor has been changed in place; 0 for inference tensors, which do not count.

    What is remembered of a tensor holds for one version only. Without it nothing could be
    remembered, and every call would look for infinities in all weights.
    """
    if tensor.is_inference():
        return 0
    return tensor._version


def own_parameters(module: nn.Module) -> Mapping[str, Tensor | None]:
    """The parameters of a module itself, not of its parts.

    Every call of a net compares their shapes; ``named_parameters(recurse=False)`` is public and
    gives the same, several times slower.
    """
    return module._parameters


def own_buffers(module: nn.Module) -> Mapping[str, Tensor | None]:
    """The buffers of a module itself, not of its parts; see :func:`own_parameters`."""
    return module._buffers


# -- autograd --------------------------------------------------------------------------------------


def will_execute(node: torch.autograd.graph.Node) -> bool:
    """Whether the backward pass that is running will come to a node of the autograd graph. May be
    asked during a pass only.

    The gradient of a weight is left where it is gathered only if the pass comes there:
    ``torch.autograd.grad`` for other tensors does not. Without it such a gradient would be lost, or
    be computed for nobody.
    """
    return torch._C._will_engine_execute_node(node)


def backward_pass() -> int:
    """A number for the backward pass that is running; -1 if none is.

    Tells the terms of this pass from those that a pass left behind which did not come to its end
    (an exception). Without it such terms would be added to the next gradient.
    """
    return torch._C._current_graph_task_id()


# -- export ----------------------------------------------------------------------------------------


def any_free_size() -> AbstractContextManager[None]:
    """Trace as if a free size could be anything, 0 and 1 included.

    A model that treats these in another way then leaves an assumption in the program. torch.export
    by itself takes it for granted that free sizes are 2 or more; without this a batch of one could
    be given bounds of something else than the model computes.
    """
    if not hasattr(_symbolic_shapes, "backed_size_oblivious"):  # torch 2.6
        return _any_free_size_of_torch_2_6()
    found: AbstractContextManager[None] = _symbolic_shapes.patch(  # type: ignore[attr-defined]
        backed_size_oblivious=True
    )
    return found


@contextmanager
def _any_free_size_of_torch_2_6() -> Iterator[None]:
    """torch 2.6 has no such setting: sizes are created as later versions create them under it. No 0
    or 1 is excluded, and what torch's own functions ask about sizes only to choose a way of
    computing (``size_like``) is answered as if they were 2 or more. Fourier transforms of real
    values, which it refuses for free sizes because it is not sure of their order in memory, are
    traced: graphs here do not depend on that order."""
    create_sizes = ShapeEnv._produce_dyn_sizes_from_int_tuple

    def created(self: Any, *args: Any, **kwargs: Any) -> list[sympy.Expr]:
        sizes = create_sizes(self, *args, **kwargs)
        self.size_like.update(size for size in sizes if isinstance(size, sympy.Symbol))
        return sizes

    checks = [
        check
        for check in _fake_impls.op_implementations_checks
        if check[0] is not _fake_impls.stride_incorrect_op
    ]
    with (
        _replaced(_fake_tensor, "op_implementations_checks", checks),
        _replaced(ShapeEnv, "_default_value_range", lambda _: ValueRanges(0, int_oo)),
        _replaced(ShapeEnv, "_produce_dyn_sizes_from_int_tuple", created),
    ):
        yield


_patching = threading.Lock()
_patched: dict[str, list[Any]] = {}
"""Name of a function of torch -> the original, once for each context that has replaced it."""


@contextmanager
def _replaced(module: Any, name: str, other: object) -> Iterator[None]:
    """Replace a name of a module or class of torch for all threads; it is put back when the last
    context ends."""
    with _patching:
        originals = _patched.setdefault(name, [])
        found = originals[0] if originals else vars(module).get(name) or vars(builtins)[name]
        originals.append(found)
        setattr(module, name, other)
    try:
        yield
    finally:
        with _patching:
            original = originals.pop()
            if not originals:
                setattr(module, name, original)


def masks_as_given() -> AbstractContextManager[None]:
    """nn.TransformerEncoder looks into a mask to see whether it is causal, only to pick a faster
    kernel; torch.export takes that for control flow that depends on data. Within this context it
    does not look. The mask itself is applied either way.

    Without it no transformer with a mask could be captured. The function is replaced for all
    threads, and put back when the last context ends.
    """
    return _replaced(_transformer, "_detect_is_causal_mask", _as_said)


def _as_said(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    return is_causal is True


def masks_out_of_place() -> AbstractContextManager[None]:
    """nn.MultiheadAttention writes numbers in place of a mask of truth values, which torch 2.6
    refuses when it takes the program apart. Within this context it makes them otherwise; torch 2.10
    needs nothing.

    Without it no attention with such a mask could be captured there.
    """
    if VERSION >= (2, 10):
        return nullcontext()
    return _replaced(nn.functional, "_canonical_mask", _mask_of_numbers)


_canonical_mask = nn.functional._canonical_mask


def _mask_of_numbers(mask: Tensor | None, **about: Any) -> Tensor | None:
    """0 where a mask is false, minus infinity where it is true."""
    if mask is not None and mask.dtype == torch.bool:
        zeros = torch.zeros_like(mask, dtype=about["target_type"])
        mask = zeros.masked_fill(mask, float("-inf"))
    return _canonical_mask(mask, **about)


def free_sizes_computed() -> AbstractContextManager[None]:
    """Operators that are called by hand on values of tracing, with free sizes. In torch 2.6 and
    2.10 some of them (matmul) know free sizes only in their forms in Python, which are taken within
    this context. torch 2.13 needs nothing.

    Without it no products of complex values could be captured there for any batch size.
    """
    if VERSION >= (2, 13):
        return nullcontext()
    found: AbstractContextManager[None] = enable_python_dispatcher()
    return found


def lists_of_weights() -> AbstractContextManager[None]:
    """A recurrent layer keeps its weights in a list as well, which torch 2.6 takes for tensors that
    the model assigns if the layer is the whole model. Within this context the list is at the end
    what it was; torch 2.10 needs nothing.

    Without it a recurrent layer alone could not be captured there.
    """
    if VERSION >= (2, 10):
        return nullcontext()
    return _replaced(_trace, "_detect_attribute_assignment", _assignments)


_assignments_of_torch = vars(_trace).get("_detect_attribute_assignment", nullcontext)


@contextmanager
def _assignments(model: nn.Module) -> Iterator[None]:
    """Look for tensors that a model assigns, apart from the weights of a recurrent layer."""
    with _assignments_of_torch(model):
        weights = list(vars(model).get("_flat_weights", []))
        yield
        if weights:
            vars(model)["_flat_weights"] = weights


def maps_recorded() -> AbstractContextManager[None]:
    """torch.func.vmap inside of a model. torch 2.6 takes the program apart only after it has traced
    it, and values that are mapped cannot leave their function. Within this context what is mapped
    is traced by itself, down to operators on all samples at once, and these are recorded; torch
    2.10 needs nothing.

    Without it no model with torch.func.vmap could be captured there, nor ONNX files whose steps are
    for one sample. Derivatives inside of maps are refused, as by all versions; maps inside of
    derivatives are left to torch, which refuses them.
    """
    if VERSION >= (2, 10):
        return nullcontext()
    return _replaced(_vmap, "_flat_vmap", _flat_vmap)


_flat_vmap_of_torch = _vmap._flat_vmap


def _flat_vmap(
    function: Callable[..., Any],
    size: Any,
    dims: Any,
    values: list[Any],
    *others: Any,
    **kwargs: Any,
) -> Any:
    """What torch's own function gives, computed by operators that it traces."""
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    if transformed or _proxies.get_proxy_mode() is None:
        return _flat_vmap_of_torch(function, size, dims, values, *others, **kwargs)
    places = [place for place, value in enumerate(values) if isinstance(value, Tensor)]
    tensors = [values[place] for place in places]

    def mapped(*tensors: Tensor) -> Any:
        inside = list(values)
        for place, tensor in zip(places, tensors, strict=True):
            inside[place] = tensor
        return _flat_vmap_of_torch(function, size, dims, inside, *others, **kwargs)

    with (
        _replaced(_transforms, "grad_increment_nesting", _untraced(_reverse)),
        _replaced(_transforms, "jvp_increment_nesting", _untraced(_forward)),
        _proxies.disable_proxy_modes_tracing(),
        torch._C.DisableTorchFunction(),
        torch.no_grad(),
    ):
        graph = _proxies.make_fx(mapped)(*tensors)
    return torch.fx.Interpreter(graph).run(*tensors)


_reverse = _transforms.grad_increment_nesting
_forward = _transforms.jvp_increment_nesting


def _untraced(derivatives: Callable[[], Any]) -> Callable[[], Any]:
    """What begins derivatives; refused in the thread that traces."""

    def begin() -> Any:
        if _proxies.get_proxy_mode() is not None:
            raise RuntimeError("functorch: derivatives inside of vmap")
        return derivatives()

    return begin


def states_in_shape() -> AbstractContextManager[None]:
    """What torch 2.6 and 2.10 decompose an LSTM into has one dimension too many in its last
    states, if the batch is not 1. Within this context it has not; torch 2.13 needs nothing.

    Without it models that return these states, or compute with them, would be refused there.
    """
    if VERSION >= (2, 13):
        return nullcontext()
    return _replaced(_decompositions, "one_layer_lstm", _one_layer)


_one_layer_of_torch = _decompositions.one_layer_lstm


def _one_layer(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Last states are (batch, features)."""
    output, states = _one_layer_of_torch(*args, **kwargs)
    return output, tuple(state.reshape(state.shape[-2:]) for state in states)


def trace_by(op: OpOverload, function: Callable[..., Any]) -> None:
    """Have torch trace an operator by a function that computes the same with other operators.

    In torch 2.6 and 2.10 some operators (quantile) look at numbers of their arguments, which
    tracing does not have. The program still has the operator; torch 2.13 needs nothing. Without it
    no quantiles could be captured there.
    """
    if VERSION < (2, 13) and DispatchKey.CompositeImplicitAutograd not in op.py_kernels:
        op.py_impl(DispatchKey.CompositeImplicitAutograd)(function)


@contextmanager
def parts_uncompiled() -> Iterator[None]:
    """What torch.compile has wrapped inside of a model is traced as if it were not.

    torch 2.6 refuses compiled parts in torch.export unless told so by this private option, torch
    2.10 compiles them there, and fails; for newer ones it changes nothing. Without it models with
    compiled parts would be refused by these.
    """
    with set_stance("force_eager"), _dynamo.patch(error_on_nested_fx_trace=False):
        yield


def operators_listed_once() -> AbstractContextManager[None]:
    """To take a program apart torch makes Python objects of all operators that its C++ side has,
    once for each namespace of operators (27). Within this context it does so once.

    Without it nothing breaks, but capturing a small model takes an eighth longer.
    """
    return _replaced(_export_utils, "_materialize_cpp_cia_ops", functools.cache(_list_operators))


_list_operators = _export_utils._materialize_cpp_cia_ops


@contextmanager
def quiet() -> Iterator[None]:
    """torch logs a failed export as an error, under the names of private modules, and prints the
    graph so far; ours becomes an exception, or another attempt. Without it users would see errors
    that are none."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with _replaced(_trace, "print", _unheard):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


LOGGERS = (
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch.fx.experimental.recording",  # torch 2.6
)


def _unheard(*_: object, **__: object) -> None:
    """In place of ``print``."""


def is_fake(value: object) -> bool:
    """Whether a value is a stand-in of tracing, a tensor without numbers.

    torch.export leaves such constants in programs of some models that take derivatives, and says
    nothing. Without it whatever reads their values would fail, in words that nobody understands.
    """
    return _fake_tensor.is_fake(value)


def is_traced(module: object) -> bool:
    """Whether a module, or the module it is a part of, was made by torch.jit.trace.

    torch.export reads calls of these, and not of what torch.jit.script makes. Without it both would
    be refused.
    """
    return isinstance(module, torch.jit.TracedModule)  # type: ignore[attr-defined]


def size_expression(size: int | torch.SymInt) -> sympy.Expr:
    """A size as an expression (sympy) of free ones.

    Without it nothing would be known about how sizes inside of a model depend on the batch size.
    """
    if isinstance(size, int):
        return sympy.Integer(size)
    return size.node.expr


def guards(size: torch.SymInt) -> Iterator[sympy.Basic]:
    """The relations (sympy) that tracing met and took for true, in the trace that a free size
    belongs to, written in the sizes that are left: tracing may have found others to be equal to one
    of them, or to be fixed.

    Without it a graph would be used for batch sizes for which the model takes another path.
    """
    environment = size.node.shape_env
    for guard in environment.guards:
        relation = guard.expr
        while relation.free_symbols & set(environment.replacements):
            relation = relation.xreplace(environment.replacements)
        yield relation
