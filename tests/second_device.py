"""A second device without a GPU: its memory lies on the host, but torch keeps to the rules of a
device of its own.

It has torch's key for devices that are not torch's (PrivateUse1), so capture, autograd with its
threads, torch.func and optimisers treat it as they treat CUDA. Whatever reaches it runs the CPU's
kernel on the same memory. What CUDA refuses it refuses, and it counts what makes the host wait for
a device, by the line of boundlab that asked. Importing this registers it, for the whole process.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

import boundlab

if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
    pytest.skip("this torch has no devices that are written in Python", allow_module_level=True)

NAME = "otherdevice"


class _Module(backend_registration._DummyBackendModule):
    """What torch asks of ``torch.otherdevice``: its random numbers are the host's."""

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)


backend_registration._setup_privateuseone_for_python_backend(NAME, _Module())
DEVICE = torch.device(NAME, 0)
HOST = torch.device("cpu")

waits: Counter[str] = Counter()
"""How often the host waited for the device, by line and reason."""
kernels: Counter[str] = Counter()
"""How often each operator ran on it."""


class Refused(RuntimeError):
    """CUDA would not do this."""


def forget() -> None:
    """Begin to count anew."""
    waits.clear()
    kernels.clear()


# -- one memory, two devices -----------------------------------------------------------------------

_KINDS = {HOST: 1, DEVICE: 12}
"""DLPack's numbers of the devices."""
_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def seen_from(device: torch.device, tensor: Tensor) -> Tensor:
    """A tensor of the device on the memory of another one's. DLPack hands over where the data are,
    then on which device: we say another."""
    capsule = torch._C._to_dlpack(tensor)  # type: ignore[attr-defined]
    kind_and_index = (ctypes.c_int32 * 2).from_address(
        _address(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)
    )
    kind_and_index[:] = [_KINDS[device], 0]
    found: Tensor = torch._C._from_dlpack(capsule)  # type: ignore[attr-defined]
    return found


# -- every operator --------------------------------------------------------------------------------

_WAITING = {
    "_local_scalar_dense": "item",
    "nonzero": "nonzero",
    "masked_select": "mask",
    "equal": "equal",
    "_unique2": "unique",
    "unique_dim": "unique",
}
"""Operators whose result, or its shape, the host has to know."""
_INDEXING = {"index", "_index_put_impl_"}
"""Their indices may lie on the host. What is put where a mask says needs to know how many there
are; what is taken asks ``nonzero``."""
_ELEMENTWISE_ONLY = {
    "mm",
    "bmm",
    "addmm",
    "addmv",
    "mv",
    "dot",
    "baddbmm",
    "convolution",
    "gather",
    "scatter",
    "scatter_add",
    "index_select",
    "embedding",
    "cat",
}
"""Operators that do not even take a number that lies on the host, as elementwise ones do."""


def _line() -> str:
    """The innermost line of boundlab that is at work."""
    home, frame = str(Path(boundlab.__file__).parent), sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(home):
            return f"{Path(frame.f_code.co_filename).relative_to(home)}:{frame.f_lineno}"
        frame = frame.f_back
    return "outside"


def _count(name: str, args: tuple[Any, ...]) -> None:
    kernels[name] += not name.startswith("empty")  # which is memory, no work
    masks = name == "_index_put_impl_" and any(
        isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1]
    )
    if name in _WAITING or masks:
        waits[f"{_line()} {'mask' if masks else _WAITING[name]}"] += 1


def _refuse(name: str, args: Any) -> None:
    """What CUDA refuses, given all arguments of an operator of which at least one is the
    device's."""
    leaves = pytree.tree_leaves(args)
    if any(isinstance(leaf, torch.Generator) and leaf.device == HOST for leaf in leaves):
        raise Refused(f"{name}: a generator of the CPU for a tensor of another device")
    indices = {id(i) for i in args[0][1]} if name in _INDEXING else set()
    on_host = [
        leaf
        for leaf in leaves
        if isinstance(leaf, Tensor) and leaf.device == HOST and id(leaf) not in indices
    ]
    if any(leaf.dim() or name in _ELEMENTWISE_ONLY for leaf in on_host):
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        places = [(str(tensor.device), tuple(tensor.shape)) for tensor in tensors]
        raise Refused(f"{name}: tensors of two devices: {places}")


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The CPU's kernel on the memory of the device's tensors."""
    name = op._schema.name.removeprefix("aten::")
    takes_tensor = [
        isinstance(argument.type, torch.TensorType) for argument in op._schema.arguments
    ]
    args = tuple(
        torch.tensor(a) if takes and isinstance(a, (bool, int, float)) else a
        for takes, a in zip(takes_tensor, args, strict=False)
    )  # numbers
    _count(name, args)
    _refuse(name, (args, kwargs))
    # by id of the host's tensor: it, and the device's on the same memory
    own: dict[int, tuple[Tensor, Tensor]] = {}

    def down(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return HOST
        if not isinstance(leaf, Tensor) or leaf.device == HOST:
            return leaf
        # this one can grow
        lowered = (
            seen_from(HOST, leaf) if leaf.numel() else torch.empty(leaf.shape, dtype=leaf.dtype)
        )
        own[id(lowered)] = lowered, leaf
        return lowered

    def up(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        known = own.get(id(leaf))
        if known is None:
            return seen_from(DEVICE, leaf)
        if known[1].shape != leaf.shape:
            known[1].data = seen_from(DEVICE, leaf)
        return known[1]

    down_args, down_kwargs = pytree.tree_map(down, (args, kwargs))
    return pytree.tree_map(up, op(*down_args, **down_kwargs))


def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Between the devices, or on this one."""
    kernels["copy"] += 1
    if target.device == HOST:
        waits[f"{_line()} copy to the host"] += 1
    on_host = [
        tensor if tensor.device == HOST else seen_from(HOST, tensor) for tensor in (target, source)
    ]
    on_host[0].copy_(on_host[1])
    return target


def _same(op: Any) -> Any:
    """A view: the CPU's kernel takes any device's tensors, since it only looks at shapes and
    strides."""
    return lambda *args, **kwargs: op._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> Any:
    transposed, groups = rest[3], rest[5]
    bias = [weight.shape[1] * groups if transposed else weight.shape[0]]
    return _run(aten.convolution_backward.default, gradient, x, weight, bias, *rest)


def _lstm_cell_backward(
    of_state: Tensor | None,
    of_new: Tensor | None,
    cell: Tensor,
    new: Tensor,
    gates: Tensor,
    biased: bool,
) -> tuple[Tensor, ...]:
    """By hand: the CPU has no kernel for that of _lstm_cell's either."""
    i, f, g, o = gates.chunk(4, 1)
    of_state = torch.zeros_like(new) if of_state is None else of_state
    inside = of_state * o * (1 - new.tanh() ** 2)
    inside = inside if of_new is None else inside + of_new
    parts = [
        inside * g * i * (1 - i),
        inside * cell * f * (1 - f),
        inside * i * (1 - g * g),
        of_state * new.tanh() * o * (1 - o),
    ]
    of_gates = torch.cat(parts, 1)
    return of_gates, inside * f, of_gates.sum(0) if biased else of_gates.new_zeros(0)


def _lstm_cell(
    from_input: Tensor, from_state: Tensor, cell: Tensor, *biases: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """What CUDA runs as one kernel, and the CPU has none for."""
    gates = torch.stack([from_input, from_state]).sum(0)
    for bias in biases:
        gates = gates if bias is None else gates + bias
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * cell + i * g
    return o * new.tanh(), new, torch.cat([i, f, g, o], 1)


aten = torch.ops.aten
_everything, _library = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
_everything.fallback(_run, "PrivateUse1")
for _view in (
    aten.as_strided.default,
    aten.view.default,
    aten._reshape_alias.default,
    aten.unfold.default,
):
    _library.impl(_view, _same(_view), "PrivateUse1")
_library.impl(aten._copy_from.default, _copy, "PrivateUse1")
_library.impl(
    aten.convolution_overrideable.default,
    lambda *args: _run(aten.convolution.default, *args),
    "PrivateUse1",
)
_library.impl(aten.convolution_backward_overrideable.default, _convolution_backward, "PrivateUse1")
_library.impl(aten._thnn_fused_lstm_cell.default, _lstm_cell, "PrivateUse1")
_library.impl(aten._thnn_fused_lstm_cell_backward_impl.default, _lstm_cell_backward, "PrivateUse1")
