"""Sums and products of coefficient rows with constants, and whether all entries are finite."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from boundlab.compat.private import version
from boundlab.kernels.autograd import Context


def dots(rows: Tensor, constant: Tensor) -> Tensor:
    """``(rows, samples, n), (samples, n) -> (rows, samples)``: inner products, as vector times
    matrix, which reads the rows once and writes nothing in between. With gradients as product and
    sum: backward passes of such thin products are slow."""
    if repeats(rows) and rows.shape[1] > 1:
        return torch.matmul(common(rows).to(constant.dtype), constant.T)
    if rows.requires_grad or constant.requires_grad:
        return (rows * constant).sum(2)
    kind = torch.promote_types(rows.dtype, constant.dtype)
    vectors = constant.to(kind).unsqueeze(1)
    matrices = rows.to(kind).permute(1, 2, 0)
    return torch.bmm(vectors, matrices).squeeze(1).T


def repeats(rows: Tensor) -> bool:
    """Whether rows (rows, samples, ...) are the same for all samples: in memory they are there
    once."""
    return rows.stride(1) == 0


class _Common(torch.autograd.Function):
    """The rows of the first sample, if all samples have the same ones. The gradient of picking them
    would be a tensor for all samples that is 0 but for the first; spread evenly over them, it takes
    no memory."""

    @staticmethod
    def forward(rows: Tensor) -> Tensor:
        return rows[:, 0]

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: object) -> None:
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> Tensor:
        return (gradient / ctx.shape[1]).unsqueeze(1).expand(ctx.shape)


def common(rows: Tensor) -> Tensor:
    """``(rows, samples, ...) -> (rows, ...)`` for rows that are the same for all samples."""
    if not rows.requires_grad:
        return rows[:, 0]
    return _Common.apply(rows)


# To ask for a value costs next to nothing on the CPU, and a branch may spare work. Any other device
# has to finish all that it was given before it can answer, which takes longer than most work: it is
# asked once for what many rows meet, and not at all where the work is right in any case.


def unless_infinite(
    fast: Callable[[], Tensor], careful: Callable[[], Tensor], constant: Tensor
) -> Tensor:
    """A sum of products with a constant, in which 0 times infinity must count as 0 if there is any:
    only ``careful`` knows that."""
    if not constant.is_cpu:
        if all_finite(constant):
            return fast()
        return careful()
    found = fast()  # smaller than the constant, most of the time
    if all_finite(found):
        return found
    return careful()


def all_finite(*tensors: Tensor) -> bool:
    """Whether all entries are finite. Of another device than the CPU it is remembered."""
    if tensors[0].is_cpu:
        return all(_finite(tensor, tensor.detach().sum().item()) for tensor in tensors)
    unknown = [tensor for tensor in tensors if not _is_known(tensor)]
    if unknown:
        # all sums in one question
        sums = torch.stack([tensor.detach().sum().float() for tensor in unknown]).tolist()
        for tensor, total in zip(unknown, sums, strict=True):
            _KNOWN[tensor] = (_version(tensor), _finite(tensor, total))
    return all(_KNOWN[tensor][1] for tensor in tensors)


def _finite(tensor: Tensor, total: float) -> bool:
    """Whether all entries are finite, of which a finite sum is a proof; it may overflow, and then
    they are looked at one by one."""
    return math.isfinite(total) or bool(torch.isfinite(tensor).all())


def _is_known(tensor: Tensor) -> bool:
    """Whether :data:`_KNOWN` has an answer for the tensor as it is now."""
    known_version, _ = _KNOWN.get(tensor, (None, False))
    return known_version == _version(tensor)


_KNOWN = WeakTensorKeyDictionary()
"""Tensor -> its version when it was asked, and whether all of it is finite."""


def remembered(tensor: Tensor | None) -> bool | None:
    """What :func:`all_finite` has found; None if it was not asked, or need not remember."""
    if tensor is None:
        return None
    _, finite = _KNOWN.get(tensor, (0, None))
    return finite


def remember(tensor: Tensor | None, finite: bool | None) -> None:
    """Spare :func:`all_finite` a question whose answer is known."""
    if tensor is not None and finite is not None:
        _KNOWN[tensor] = _version(tensor), finite


def _version(tensor: Tensor) -> int:
    """How often it has been changed. Inference tensors do not count that; nobody changes those that
    we ask."""
    return version(tensor)


def spares(condition: Tensor) -> bool:
    """Whether a condition that makes work needless holds everywhere; another device than the CPU is
    not asked: do the work."""
    return condition.is_cpu and bool(condition.all())


def seems_finite(*tensors: Tensor) -> bool:
    """Whether all entries are finite, if that spares work: as :func:`spares`."""
    return tensors[0].is_cpu and all_finite(*tensors)


def product(rows: Tensor, constant: Tensor) -> Tensor:
    """``rows * constant`` where a zero coefficient annuls even an infinite constant (a masked score
    of -inf)."""
    if all_finite(constant):
        return rows * constant
    # in this order, so that no gradient meets the infinity either
    return rows * torch.where(rows == 0, 0, constant)
