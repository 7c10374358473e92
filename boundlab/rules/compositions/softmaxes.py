"""softmax in its variants, and its logarithm."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition
from boundlab.rules.settings import in_type


@composition(aten.log_softmax.int)
def log_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    x = in_type(x, dtype)
    return x - torch.logsumexp(x, (dim,), True)


@composition(aten._log_softmax.default)
def plain_log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return log_softmax(x, dim)


@composition(aten.softmax.int)
def softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    result: Tensor = aten._softmax.default(in_type(x, dtype), dim, False)
    return result


@composition(aten._safe_softmax.default)
def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Zero where every score is masked away."""
    return softmax_where(in_type(x, dtype), x != -math.inf, dim)


def softmax_where(x: Tensor, allowed: Tensor, dim: int) -> Tensor:
    """The softmax over the allowed scores; zero where there is none."""
    some = allowed.any(dim, True)
    masked = torch.full((), -math.inf, dtype=x.dtype, device=x.device)
    scores = torch.where(allowed | ~some, x, masked)
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    return torch.where(some, softmax(scores, dim), zero)
