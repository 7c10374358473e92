"""Random tensors by their seed."""

from __future__ import annotations

import torch
from torch import Tensor


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
