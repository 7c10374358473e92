"""What a case is, the table of all cases, and the ways to write an entry."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

BATCH = 12
"""Samples in a batch; each has a centre and a radius of its own."""


class Applied(nn.Module):
    """A function of x and constants as a module that holds the constants."""

    def __init__(self, function: Callable[..., Any], *constants: Tensor | tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        for i, constant in enumerate(constants):
            self.register_buffer(
                f"constant{i}", constant if isinstance(constant, Tensor) else torch.randn(constant)
            )

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs, *self.buffers())


@dataclass(frozen=True, eq=False)
class OperatorCase:
    """model: takes one tensor. shape: of one sample. low, high: where its inputs may lie. alone: it
    fixes the batch size, so it is captured alone. batched: False if its input has no batch
    dimension."""

    model: nn.Module
    shape: tuple[int, ...]
    low: float = -math.inf
    high: float = math.inf
    alone: bool = False
    batched: bool = True


def _model(entry: Any) -> nn.Module:
    if isinstance(entry, nn.Module):
        return entry.eval()
    function, *constants = entry if isinstance(entry, tuple) else (entry,)
    return Applied(function, *constants)


CASES: dict[str, OperatorCase] = {}
ELEMENTWISE: set[str] = set()
"""Names of the cases that act on each element alone: these are also attacked with dense grids."""


def add(
    shape: tuple[int, ...],
    table: Mapping[str, Any],
    low: float = -math.inf,
    high: float = math.inf,
    *,
    elementwise: bool = False,
    **kind: bool,
) -> None:
    assert not set(table) & set(CASES), set(table) & set(CASES)
    CASES.update(
        {
            name: OperatorCase(_model(entry), shape, low, high, **kind)
            for name, entry in table.items()
        }
    )
    ELEMENTWISE.update(table if elementwise else ())


def on(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function with these options."""
    return lambda x, *constants: f(x, *constants, **options)


def written(place: Callable[[Tensor, Tensor], None]) -> Callable[[Tensor], Tensor]:
    """A copy of x in which ``place(copy, x)`` writes."""

    def run(x: Tensor) -> Tensor:
        y = x.clone()
        place(y, x)
        return y

    return run


def normalised_batch(layer: nn.Module) -> nn.Module:
    """A batch norm whose running statistics are not the initial ones."""
    layer.running_mean.normal_()  # type: ignore[operator, union-attr]
    layer.running_var.uniform_(0.2, 2.0)  # type: ignore[operator, union-attr]
    if layer.weight is not None:
        nn.init.normal_(layer.weight)  # type: ignore[arg-type]
        nn.init.normal_(layer.bias)  # type: ignore[arg-type]
    return layer
