"""Sums of weighted distances, without the differences as a whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundlab.kernels.blocks import BLOCK


class _AbsoluteDots(torch.autograd.Function):
    """(rows (k, n), others (s, n), weights (s, n)) -> sum of |row - other| * weight: (k, s).

    Made and made again in blocks that stay in the cache: the differences themselves, (k, s, n), are
    never there as a whole.
    """

    @staticmethod
    def forward(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
        total = rows.new_zeros(len(rows), len(others))
        for part in _blocks(rows, others):
            total += (
                (rows[:, None, part] - others[None, :, part]).abs_().mul_(weights[:, part]).sum(2)
            )
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, others, weights = ctx.saved_tensors
        of_rows, of_others, of_weights = (
            torch.empty_like(rows),
            torch.empty_like(others),
            torch.empty_like(weights),
        )
        for part in _blocks(rows, others):
            gaps = rows[:, None, part] - others[None, :, part]
            signs = gaps.sign().mul_(gradient.unsqueeze(2))
            of_weights[:, part] = gaps.mul_(signs).sum(0)
            signs.mul_(weights[:, part])
            of_others[:, part] = -signs.sum(0)
            of_rows[:, part] = signs.sum(1)
        return of_rows, of_others, of_weights


def _blocks(rows: Tensor, others: Tensor) -> list[slice]:
    size = max(1, 2 * BLOCK.get(rows.device.type, 1 << 25) // max(1, len(rows) * len(others)))
    return [slice(first, first + size) for first in range(0, rows.shape[1], size)]


def absolute_dots(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """sum over n of |rows_kn - others_sn| * weights_sn: (k, n), (s, n), (s, n) -> (k, s)."""
    found: Tensor = _AbsoluteDots.apply(rows, others, weights)  # type: ignore[no-untyped-call]
    return found
