"""Comparisons, truth values and choices."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boundlab.onnx.table import row

BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor,
    "Equal": torch.eq, "Greater": torch.gt, "GreaterOrEqual": torch.ge,
    "Less": torch.lt, "LessOrEqual": torch.le,
    "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
}  # fmt: skip


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def apply(x: Tensor, y: Tensor) -> Tensor:
        return function(x, y)

    return apply


for _name, _function in BINARY.items():
    row(_name)(_binary(_function))


@row("Not")
def logical_not(x: Tensor) -> Tensor:
    return torch.logical_not(x)


@row("BitwiseNot")
def bitwise_not(x: Tensor) -> Tensor:
    return torch.bitwise_not(x)


@row("Where")
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)
