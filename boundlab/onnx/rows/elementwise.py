"""Functions of single elements, and arithmetic of two tensors that broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.errors import UnsupportedOperator
from boundlab.onnx.table import Operand, row

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin,
    "Asinh": torch.asinh, "Atan": torch.atan, "Atanh": torch.atanh, "Ceil": torch.ceil,
    "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp,
    "Floor": torch.floor, "Log": torch.log, "Mish": F.mish, "Neg": torch.neg,
    "Reciprocal": torch.reciprocal, "Relu": torch.relu, "Round": torch.round,
    "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin, "Sinh": torch.sinh,
    "Softplus": F.softplus, "Softsign": F.softsign, "Sqrt": torch.sqrt, "Tan": torch.tan,
    "Tanh": torch.tanh, "IsNaN": torch.isnan,
}  # fmt: skip


def _unary(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def apply(x: Tensor) -> Tensor:
        return function(x)

    return apply


for _name, _function in UNARY.items():
    row(_name)(_unary(_function))


# -- with attributes -------------------------------------------------------------------------------


@row("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@row("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@row("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@row("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@row("HardSwish")
def hard_swish(x: Tensor) -> Tensor:
    return F.hardswish(x)


@row("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@row("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.relu(x) - slope * torch.relu(-x)


@row("Selu")
def selu(
    x: Tensor,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Tensor:
    return gamma * F.elu(x, alpha)


@row("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))


@row("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * torch.sigmoid(alpha * x)


@row("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.threshold(x, alpha, 0.0)


@row("Clip")
def clip_by_attributes(x: Tensor, *, min: float = -math.inf, max: float = math.inf) -> Tensor:
    return clip(x, min, max)


@row("Clip", since=11)
def clip(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """Where min exceeds max, every element is max, as in torch."""
    low = None if min == -math.inf else min
    high = None if max == math.inf else max
    if low is None and high is None:
        return x
    return torch.clamp(x, low, high)


@row("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    return (bool(detect_negative) & (x == -math.inf)) | (bool(detect_positive) & (x == math.inf))


# -- two and more tensors --------------------------------------------------------------------------


@row("Add")
def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


@row("Sub")
def sub(x: Tensor, y: Tensor) -> Tensor:
    return x - y


@row("Mul")
def mul(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@row("Div")
def div(x: Tensor, y: Tensor) -> Tensor:
    """Whole numbers are divided towards 0."""
    if x.is_floating_point() or y.is_floating_point():
        return x / y
    if not (x.dtype.is_signed and y.dtype.is_signed):
        return torch.div(x, y, rounding_mode="trunc")
    negated = y == -1  # the smallest whole number by -1 would end the process
    return torch.where(negated, -x, torch.div(x, y.masked_fill(negated, 1), rounding_mode="trunc"))


@row("Pow")
def power(x: Tensor, y: Operand) -> Tensor:
    """The result has the type of the base."""
    return torch.pow(x, y).to(x.dtype)


@row("Mod")
def mod(x: Tensor, y: Operand, *, fmod: int = 0) -> Tensor:
    if fmod:
        return torch.fmod(x, y)
    return torch.remainder(x, y)


@row("Max")
def maximum(*values: Tensor) -> Tensor:
    return _folded(torch.maximum, values)


@row("Min")
def minimum(*values: Tensor) -> Tensor:
    return _folded(torch.minimum, values)


@row("Sum")
def total(*values: Tensor) -> Tensor:
    return _folded(torch.add, values)


@row("Mean")
def mean(*values: Tensor) -> Tensor:
    return _folded(torch.add, values) / len(values)


def _folded(combine: Callable[[Tensor, Tensor], Tensor], values: tuple[Tensor, ...]) -> Tensor:
    if not values:
        raise UnsupportedOperator("it has no inputs")
    found = values[0]
    for value in values[1:]:
        found = combine(found, value)
    return found


@row("BitShift")
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    shift = {"LEFT": torch.bitwise_left_shift, "RIGHT": torch.bitwise_right_shift}
    return shift[direction](x, y)
