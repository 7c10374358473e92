"""Transposes in closed form of the affine operators that networks spend their time in.

Each function takes the call and returns ``rows -> rows of the only perturbed argument``, or None
where it has nothing to offer and autograd's transpose serves. They are a matter of speed only:
tests compare each with autograd's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.kernels.trained_linear import is_gathered, rows_linear
from boundlab.relaxations.broadcasting import sum_to
from boundlab.relaxations.interval import Interval, laid_out
from boundlab.rules.convolutions import Convolution
from boundlab.rules.facts import Transpose
from boundlab.rules.registry import Call
from boundlab.rules.settings import dimensions, each

One = Callable[[Tensor], Tensor]
"""(rows, *shape of the result) -> (rows, *shape) of the only perturbed argument."""


def of_one(make: Callable[[Call], One | None]) -> Callable[[Call], Transpose | None]:
    """Decorator: the transpose of calls with one perturbed argument in the form for any number."""

    @functools.wraps(make)
    def find(call: Call) -> Transpose | None:
        if len(call.positions) != 1:
            return None
        transpose = make(call)
        return None if transpose is None else lambda rows: [transpose(rows)]

    return find


def _split(rows: Tensor, sizes: list[int], dim: int) -> list[Tensor]:
    """Rows and samples as one dimension if they can: then the gradient, a concatenation, keeps
    channels last where they are."""
    if dim < 2:
        return list(rows.split(sizes, dim))
    return [part.unflatten(0, rows.shape[:2]) for part in rows.flatten(0, 1).split(sizes, dim - 1)]


# -- constant terms --------------------------------------------------------------------------------


def bias_of(dims: int) -> Callable[[Call], Tensor | float | None]:
    """The bias of a layer with ``dims`` dimensions behind that of the bias."""

    def find(call: Call) -> Tensor | float | None:
        bias = call["bias"]
        if bias is None:
            return 0.0
        if isinstance(bias, Tensor) and isinstance(call["input"], Interval):
            return bias.reshape(-1, *[1] * dims)
        return None

    return find


def no_constant_parts(call: Call) -> float | None:
    """cat and stack: none if all parts are perturbed."""
    return 0.0 if all(isinstance(part, Interval) for part in call["tensors"]) else None


def summand(sign: int) -> Callable[[Call], Tensor | float | None]:
    """The constant in x + alpha y (sign 1) or x - alpha y, of its own shape, if it is a tensor like
    the other operand."""
    return lambda call: 0.0 if len(call.positions) == 2 else _summand(call, sign)


def _summand(call: Call, sign: int) -> Tensor | None:
    x, y = call["self"], call["other"]
    if isinstance(x, Interval):
        constant, other = y, x
        factor = sign * call["alpha"]
    else:
        constant, other = x, y
        factor = 1
    if not isinstance(constant, Tensor) or constant.dtype != other.dtype:
        return None
    return constant if factor == 1 else factor * constant


# -- transposes ------------------------------------------------------------------------------------


@of_one
def linear(call: Call) -> One | None:
    x, weight = call["input"], call["weight"]
    if (
        isinstance(weight, Interval)
        and isinstance(x, Tensor)
        and len(weight.shape) == 2
        and x.dim() > 1
    ):
        flat = x.flatten(0, -2)
        return lambda rows: torch.matmul(rows.flatten(1, -2).transpose(1, 2), flat)
    if not isinstance(x, Interval) or isinstance(weight, Interval) or weight.dim() != 2:
        return None
    product = rows_linear if is_gathered(weight) else torch.matmul
    return lambda rows: product(rows, weight)


@of_one
def matmul(call: Call) -> One | None:
    """Products of matrices in batches of one shape."""
    x, y = call[0], call[1]
    if len(x.shape) != len(y.shape) or len(x.shape) < 2 or x.shape[:-2] != y.shape[:-2]:
        return None
    if isinstance(x, Interval):
        return lambda rows: torch.matmul(rows, y.transpose(-1, -2))
    return lambda rows: torch.matmul(x.transpose(-1, -2), rows)


def windows_apart(dims: int) -> Callable[[Call], bool]:
    """Whether the windows of a pooling over ``dims`` dimensions do not overlap."""

    def apart(call: Call) -> bool:
        kernel = each(call["kernel_size"], dims)
        stride = each(call["stride"] or kernel, dims)
        return all(step >= size for size, step in zip(kernel, stride, strict=True))

    return apart


def convolution(dims: int) -> Callable[[Call], Transpose | None]:
    """A convolution over ``dims`` dimensions with a constant weight."""

    @of_one
    def make(call: Call) -> One | None:
        setting = Convolution.of(call, dims)
        if setting is None:
            return None
        (x,) = call.inputs

        def transpose(rows: Tensor) -> Tensor:
            together = laid_out(rows, x).flatten(0, 1)
            return setting.back(together, whole=True).unflatten(0, rows.shape[:2])

        return transpose

    return make


@of_one
def reshape(call: Call) -> One | None:
    (x,) = call.inputs
    return lambda rows: rows.reshape(rows.shape[0], *x.shape)


@of_one
def permute(call: Call) -> One | None:
    order = call["dims"]
    inverse = [0] * len(order)
    for i, d in enumerate(order):
        inverse[d % len(order)] = i + 1
    return lambda rows: rows.permute(0, *inverse)


@of_one
def swap(call: Call) -> One | None:
    dims = len(call["self"].shape)
    first, second = call["dim0"] % dims + 1, call["dim1"] % dims + 1
    return lambda rows: rows.transpose(first, second)


@of_one
def broadcast(call: Call) -> One | None:
    (x,) = call.inputs
    return lambda rows: sum_to(rows, x.shape)


def add(sign: int) -> Callable[[Call], Transpose | None]:
    """x + alpha y (sign 1) or x - alpha y."""

    def make(call: Call) -> Transpose | None:
        factors = [1.0] if isinstance(call["self"], Interval) else []
        if isinstance(call["other"], Interval):
            factors.append(sign * call["alpha"])
        parts = [(factor, x.shape) for factor, x in zip(factors, call.inputs, strict=True)]

        def transpose(rows: Tensor) -> list[Tensor]:
            return [
                sum_to(rows if factor == 1 else rows * factor, shape) for factor, shape in parts
            ]

        return transpose

    return make


def concatenate(call: Call) -> Transpose | None:
    """cat, if all parts are perturbed: each gets the rows along ``dim`` that it made."""
    parts = call["tensors"]
    if not all(isinstance(part, Interval) for part in parts):
        return None
    dim = call["dim"] % len(parts[0].shape)
    sizes = [part.shape[dim] for part in parts]
    return lambda rows: _split(rows, sizes, dim + 1)


@of_one
def multiply(call: Call) -> One | None:
    x, y = call["self"], call["other"]
    constant = y if isinstance(x, Interval) else x
    shape = call.inputs[0].shape
    return lambda rows: sum_to(rows * constant, shape)


def total(mean: bool) -> Callable[[Call], Transpose | None]:
    """sum and mean: every element that is summed over gets the coefficient of the sum."""

    @of_one
    def make(call: Call) -> One | None:
        if call["dtype"] is not None:
            return None
        shape, keep = call["self"].shape, call.get("keepdim", False)
        places = dimensions(call.get("dim"), len(shape))
        count = math.prod(shape[d] for d in places) if mean else 1

        def transpose(rows: Tensor) -> Tensor:
            for d in () if keep else places:
                rows = rows.unsqueeze(d + 1)
            return (rows if count == 1 else rows / count).expand(len(rows), *shape)

        return transpose

    return make


@of_one
def negate(call: Call) -> One | None:
    return lambda rows: -rows


@of_one
def part(call: Call) -> One | None:
    """Operators that keep a run of entries along the dimension ``dim``."""
    x = call["self"]
    dims = len(x.shape)
    dim = call["dim"] % dims
    numbers = torch.arange(x.shape[dim]).reshape([1] * dim + [-1] + [1] * (dims - 1 - dim))
    kept = call.bind()(numbers)
    gone, found = kept.dim() < dims, kept.flatten().tolist()
    if not found or found != list(range(found[0], found[0] + len(found))):
        return None
    around = [0, 0] * (dims - 1 - dim) + [found[0], x.shape[dim] - 1 - found[-1]]
    return lambda rows: F.pad(rows.unsqueeze(dim + 1) if gone else rows, around)


@of_one
def flip(call: Call) -> One | None:
    dims = len(call["self"].shape)
    turned = [d % dims + 1 for d in call["dims"]]
    return lambda rows: rows.flip(turned)
