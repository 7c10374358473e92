"""softmax in its variants, and its logarithm."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition


@composition(aten.log_softmax.int, aten._log_softmax.default)
def log_softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    x = x.to(dtype) if isinstance(dtype, torch.dtype) else x
    return x - torch.logsumexp(x, (dim,), True)


@composition(aten.softmax.int)
def softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return aten._softmax.default(x if dtype is None else x.to(dtype), dim, False)


@composition(aten._safe_softmax.default)
def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Zero where every score is masked away."""
    return softmax_where(x if dtype is None else x.to(dtype), x != -math.inf, dim)


def softmax_where(x: Tensor, allowed: Tensor, dim: int) -> Tensor:
    """The softmax over the allowed scores; zero where there is none."""
    some = allowed.any(dim, True)
    scores = torch.where(
        allowed | ~some, x, torch.full((), -math.inf, dtype=x.dtype, device=x.device)
    )
    return torch.where(some, softmax(scores, dim), torch.zeros((), dtype=x.dtype, device=x.device))
