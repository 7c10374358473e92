"""Random words and their substitutes."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_words(
    seed: int, samples: int = 2, positions: int = 4, choices: int = 3, dim: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, positions, dim, dtype=torch.float64, generator=generator)
    others = torch.randn(samples, positions, choices, dim, dtype=torch.float64, generator=generator)
    return x, others, torch.rand(samples, positions, choices, generator=generator) < 0.7
