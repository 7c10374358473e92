"""What a network of the tables is, and how its parameters are made."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

IMAGE = (2, 6, 6)
"""The shape of a sample of the networks for images."""


@dataclass(frozen=True)
class NetworkCase:
    """A network and what it takes. shapes: of one sample of each input; eps: a radius for which its
    bounds stay finite."""

    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    eps: float = 0.02
    dtype: torch.dtype = torch.float32
    low: float = -1.0
    high: float = 1.0

    def model(self, seed: int = 0) -> nn.Module:
        """In eval mode, with every parameter and running statistic away from its trivial initial
        value."""
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            model = self.build()
            return stir(model).to(self.dtype).eval()

    def inputs(self, batch: int, seed: int = 1) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(
            self.low
            + (self.high - self.low)
            * torch.rand(batch, *shape, generator=generator, dtype=self.dtype)
            for shape in self.shapes
        )


def stir(model: nn.Module) -> nn.Module:
    """Move what starts at exactly 0 or 1 (biases, norms, layer scales, running statistics) to
    somewhere else."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if not tensor.is_floating_point() or tensor.dim() == 0 or "parametrizations" in name:
                continue
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif name.endswith("running_mean"):
                tensor.normal_(0, 0.2)
            elif tensor.dim() == 1 and isinstance(tensor, nn.Parameter):
                tensor.add_(0.1 * torch.randn_like(tensor))
    return model
