"""Sums of weighted distances, without the differences as a whole."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.kernels.autograd import Context
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
            total += _distances(rows[:, part], others[:, part], weights[:, part])
        return total

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, ...], output: object) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, others, weights = ctx.saved_tensors
        of_rows = torch.empty_like(rows)
        of_others = torch.empty_like(others)
        of_weights = torch.empty_like(weights)
        for part in _blocks(rows, others):
            gaps = rows[:, None, part] - others[None, :, part]
            signs = gaps.sign().mul_(gradient.unsqueeze(2))
            of_weights[:, part] = gaps.mul_(signs).sum(0)
            signs.mul_(weights[:, part])
            of_others[:, part] = -signs.sum(0)
            of_rows[:, part] = signs.sum(1)
        return of_rows, of_others, of_weights


def _distances(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """The same for columns of which all differences may be there at once."""
    gaps = (rows[:, None] - others).abs_()
    return gaps.mul_(weights).sum(2)


def _blocks(rows: Tensor, others: Tensor) -> list[slice]:
    """The columns that are worked on at once: so many that their differences fit a cache."""
    pairs = max(1, len(rows) * len(others))
    size = max(1, 2 * BLOCK.get(rows.device.type, 1 << 25) // pairs)
    return [slice(first, first + size) for first in range(0, rows.shape[1], size)]


def absolute_dots(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """sum over n of |rows_kn - others_sn| * weights_sn: (k, n), (s, n), (s, n) -> (k, s)."""
    return _AbsoluteDots.apply(rows, others, weights)
