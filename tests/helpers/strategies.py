"""What Hypothesis draws."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

D = torch.float64


def tensors(*shape: int, low: float = -3, high: float = 3) -> st.SearchStrategy[Tensor]:
    size = math.prod(shape)
    return st.lists(st.floats(low, high, width=32), min_size=size, max_size=size).map(
        lambda v: torch.tensor(v, dtype=D).reshape(shape)
    )
