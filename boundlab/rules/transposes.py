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
        if transpose is None:
            return None
        return lambda rows: [transpose(rows)]

    return find


def _split(rows: Tensor, sizes: list[int], dim: int) -> list[Tensor]:
    """Rows and samples as one dimension if they can: then the gradient, a concatenation, keeps
    channels last where they are."""
    if dim < 2:
        return list(rows.split(sizes, dim))
    parts = rows.flatten(0, 1).split(sizes, dim - 1)
    return [part.unflatten(0, rows.shape[:2]) for part in parts]


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
    if all(isinstance(part, Interval) for part in call["tensors"]):
        return 0.0
    return None


def summand(sign: int) -> Callable[[Call], Tensor | float | None]:
    """The constant in x + alpha y (sign 1) or x - alpha y, of its own shape, if it is a tensor like
    the other operand."""

    def find(call: Call) -> Tensor | float | None:
        if len(call.positions) == 2:
            return 0.0
        x, y = call["self"], call["other"]
        if not isinstance(x, Interval):
            return _of_type(x, y.dtype)
        constant, factor = _of_type(y, x.dtype), sign * call["alpha"]
        if constant is None or factor == 1:
            return constant
        return factor * constant

    return find


def _of_type(value: object, dtype: torch.dtype) -> Tensor | None:
    """A constant if it is a tensor of that type."""
    if isinstance(value, Tensor) and value.dtype == dtype:
        return value
    return None


# -- transposes ------------------------------------------------------------------------------------


@of_one
def linear(call: Call) -> One | None:
    x, weight = call["input"], call["weight"]
    if len(weight.shape) != 2:
        return None
    if isinstance(x, Tensor) and isinstance(weight, Interval) and x.dim() > 1:
        flat = x.flatten(0, -2)
        return lambda rows: torch.matmul(rows.flatten(1, -2).transpose(1, 2), flat)
    if not isinstance(x, Interval) or isinstance(weight, Interval):
        return None
    if is_gathered(weight):
        return lambda rows: rows_linear(rows, weight)
    return lambda rows: torch.matmul(rows, weight)


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
        factors, shapes = summed_factors(call, sign), [x.shape for x in call.inputs]
        parts = list(zip(factors, shapes, strict=True))
        return lambda rows: [sum_to(_scaled(rows, factor), shape) for factor, shape in parts]

    return make


def summed_factors(call: Call, sign: int) -> list[float]:
    """Of x + alpha y (sign 1) or x - alpha y, the factors of what is perturbed."""
    factors: list[float] = []
    if isinstance(call["self"], Interval):
        factors.append(1)
    if isinstance(call["other"], Interval):
        factors.append(sign * call["alpha"])
    return factors


def _scaled(rows: Tensor, factor: float) -> Tensor:
    if factor == 1:
        return rows
    return rows * factor


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
    constant = constant_factor(call)
    shape = call.inputs[0].shape
    return lambda rows: sum_to(rows * constant, shape)


def constant_factor(call: Call) -> Tensor | float:
    """Of x y with one of both perturbed, the other."""
    factor: Tensor | float = call["self"]
    if isinstance(factor, Interval):
        factor = call["other"]
    return factor


def total(mean: bool) -> Callable[[Call], Transpose | None]:
    """sum and mean: every element that is summed over gets the coefficient of the sum."""

    @of_one
    def make(call: Call) -> One | None:
        if call["dtype"] is not None:
            return None
        shape = call["self"].shape
        places = dimensions(call.get("dim"), len(shape))
        count, gone = 1, places
        if mean:
            count = math.prod(shape[d] for d in places)
        if call.get("keepdim", False):
            gone = []

        def transpose(rows: Tensor) -> Tensor:
            for d in gone:
                rows = rows.unsqueeze(d + 1)
            if count != 1:
                rows = rows / count
            return rows.expand(len(rows), *shape)

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
    found = kept.flatten().tolist()
    if not found or found != list(range(found[0], found[0] + len(found))):
        return None
    around = [0, 0] * (dims - 1 - dim) + [found[0], x.shape[dim] - 1 - found[-1]]
    if kept.dim() < dims:
        return lambda rows: F.pad(rows.unsqueeze(dim + 1), around)
    return lambda rows: F.pad(rows, around)


@of_one
def flip(call: Call) -> One | None:
    dims = len(call["self"].shape)
    turned = [d % dims + 1 for d in call["dims"]]
    return lambda rows: rows.flip(turned)
