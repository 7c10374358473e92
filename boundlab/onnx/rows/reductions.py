"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boundlab.onnx.rows.shapes import axes_of
from boundlab.onnx.table import Ints, row

Reduction = Callable[[Tensor, list[int], bool], Tensor]


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).to(x.dtype).sqrt(),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: torch.amax(x, axes, keepdim=keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: torch.amin(x, axes, keepdim=keep),
    "ReduceProd": _product,
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep),
}


def _row(function: Reduction) -> Callable[..., Tensor]:
    def apply(
        x: Tensor, axes: Ints | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        """Over all axes if none are given, or if that is asked for over none: then each element is
        reduced by itself."""
        if not axes and noop_with_empty_axes:
            return function(x.unsqueeze(-1), [x.dim()], False).to(x.dtype)
        chosen = axes_of(axes or range(x.dim()), x.dim())
        return function(x, chosen, bool(keepdims)).to(x.dtype)

    return apply


for _name, _function in REDUCTIONS.items():
    row(_name)(_row(_function))


@row("CumSum")
def cumulative_sum(x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _cumulated(torch.cumsum, x, int(axis), exclusive, reverse)


@row("CumProd")
def cumulative_product(x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _cumulated(torch.cumprod, x, int(axis), exclusive, reverse)


def _cumulated(
    function: Callable[..., Tensor], x: Tensor, axis: int, exclusive: int, reverse: int
) -> Tensor:
    """exclusive: without the element itself, so that the first result is that of nothing."""
    if reverse:
        x = x.flip(axis)
    if exclusive:
        first = x.narrow(axis, 0, 1)
        nothing = torch.zeros_like(first) if function is torch.cumsum else torch.ones_like(first)
        x = torch.cat([nothing, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    x = function(x, axis, dtype=x.dtype)
    return x.flip(axis) if reverse else x
