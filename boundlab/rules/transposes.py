"""Transposes in closed form of the affine operators that networks spend their time in.

Each function takes the call and returns ``rows -> rows of the only perturbed argument``, or None where it has nothing
to offer and autograd's transpose serves. They are a matter of speed only: tests compare each with autograd's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import grad as nn_grad

from boundlab.interval import Interval
from boundlab.relaxation import sum_to
from boundlab.rules.registry import Call, aten

Transpose = Callable[[Tensor], Tensor]


def transpose_of(call: Call) -> Callable[[Tensor], list[Tensor]] | None:
    """The transpose of a call with one perturbed argument, in the form that AffineMap takes."""
    make = TRANSPOSES.get(getattr(call.node.op, "overloadpacket", None))
    if make is None or len(call.positions) != 1 or call.node.output is not None:
        return None
    transpose = make(call)
    return None if transpose is None else lambda rows: [transpose(rows)]


def is_linear(call: Call) -> bool:
    """Whether the operator is known to have no constant term."""
    packet = getattr(call.node.op, "overloadpacket", None)
    if packet in (aten.linear, aten.conv1d, aten.conv2d, aten.conv3d):
        (_, _, *rest), kwargs = call.arguments
        return (rest[0] if rest else kwargs.get("bias")) is None
    return packet in LINEAR


def _linear(call: Call) -> Transpose | None:
    (x, weight, *_), _ = call.arguments
    if not isinstance(x, Interval) or isinstance(weight, Interval) or weight.dim() != 2:
        return None
    return lambda rows: torch.matmul(rows, weight)


def _convolution(backward: Callable[..., Tensor], dims: int) -> Callable[[Call], Transpose | None]:
    def make(call: Call) -> Transpose | None:
        (x, weight, *rest), kwargs = call.arguments
        names = ("bias", "stride", "padding", "dilation", "groups")
        given: dict[str, Any] = {**dict(zip(names, rest, strict=False)), **kwargs}
        padding = given.get("padding", 0)
        if not isinstance(x, Interval) or isinstance(weight, Interval) or isinstance(padding, str) or len(x.shape) != dims + 2:
            return None

        def transpose(rows: Tensor) -> Tensor:
            count = rows.shape[0]
            shape = (count * x.shape[0], *x.shape[1:])
            rest = given.get("stride", 1), padding, given.get("dilation", 1), given.get("groups", 1)
            flat = backward(shape, weight, rows.flatten(0, 1), *rest)
            return flat.unflatten(0, (count, x.shape[0]))

        return transpose

    return make


def _reshape(call: Call) -> Transpose | None:
    (x,) = call.inputs
    return lambda rows: rows.reshape(rows.shape[0], *x.shape)


def _permute(call: Call) -> Transpose | None:
    (_, order), _ = call.arguments
    inverse = [0] * len(order)
    for i, d in enumerate(order):
        inverse[d % len(order)] = i + 1
    return lambda rows: rows.permute(0, *inverse)


def _swap(call: Call) -> Transpose | None:
    (x, first, second), _ = call.arguments
    dims = len(x.shape)
    return lambda rows: rows.transpose(first % dims + 1, second % dims + 1)


def _broadcast(call: Call) -> Transpose | None:
    (x,) = call.inputs
    return lambda rows: sum_to(rows, x.shape)


def _add(sign: int) -> Callable[[Call], Transpose | None]:
    def make(call: Call) -> Transpose | None:
        (x, y, *_), kwargs = call.arguments
        factor = sign * kwargs.get("alpha", 1) if isinstance(y, Interval) else 1
        shape = call.inputs[0].shape
        return lambda rows: sum_to(rows if factor == 1 else rows * factor, shape)

    return make


def _multiply(call: Call) -> Transpose | None:
    (x, y), _ = call.arguments
    constant = y if isinstance(x, Interval) else x
    shape = call.inputs[0].shape
    return lambda rows: sum_to(rows * constant, shape)


def _negate(call: Call) -> Transpose | None:
    return lambda rows: -rows


TRANSPOSES: dict[Any, Callable[[Call], Transpose | None]] = {
    aten.linear: _linear,
    aten.conv1d: _convolution(nn_grad.conv1d_input, 1),
    aten.conv2d: _convolution(nn_grad.conv2d_input, 2),
    aten.conv3d: _convolution(nn_grad.conv3d_input, 3),
    aten.reshape: _reshape,
    aten.view: _reshape,
    aten.flatten: _reshape,
    aten.unflatten: _reshape,
    aten.squeeze: _reshape,
    aten.unsqueeze: _reshape,
    aten.permute: _permute,
    aten.transpose: _swap,
    aten.expand: _broadcast,
    aten.add: _add(1),
    aten.sub: _add(-1),
    aten.mul: _multiply,
    aten.neg: _negate,
}
LINEAR = frozenset(
    (
        aten.reshape, aten.view, aten.flatten, aten.unflatten, aten.squeeze, aten.unsqueeze, aten.permute, aten.transpose, aten.expand,
        aten.mul, aten.neg, aten.slice, aten.select, aten.split, aten.split_with_sizes, aten.unbind, aten.sum, aten.mean,
        aten.matmul, aten.mm, aten.bmm,
        aten.index_select, aten.gather, aten.index, aten.repeat, aten.flip, aten.roll, aten.avg_pool2d, aten.adaptive_avg_pool2d,
    )
)  # fmt: skip
"""Operators without a constant term."""
