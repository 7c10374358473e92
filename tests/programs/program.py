"""What a program of the tables is: code of the kind that users write, with example inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import boundlab as bl

BATCH = 2
Given = Callable[[int], Tensor]
"""Batch size -> an input that is not perturbed."""


@dataclass(frozen=True)
class Program:
    """build: makes the module or function. shapes: of one sample of each perturbed input, drawn
    from [low, high] and moved by eps. given: further inputs, by place; named: by name.

    batched: False if inputs have no batch dimension. refused: words that the error must have, of
    programs that are refused today. raw: words of an error that is not of boundlab's family, of
    programs that end in one today: a defect.
    """

    build: Callable[[], Callable[..., Any]]
    shapes: tuple[tuple[int, ...], ...]
    eps: float = 0.05
    low: float = -1.0
    high: float = 1.0
    given: tuple[Given, ...] = ()
    named: Mapping[str, Given] = field(default_factory=dict)
    batched: bool = True
    dtype: torch.dtype = torch.float32
    refused: str | None = None
    raw: str | None = None

    def model(self) -> Callable[..., Any]:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = self.build()
        if isinstance(model, nn.Module):
            model = model.to(self.dtype).eval()
        return model

    def regions(self) -> tuple[bl.Linf, ...]:
        generator = torch.Generator().manual_seed(1)
        batch = (BATCH,) if self.batched else ()
        found = []
        for shape in self.shapes:
            unit = torch.rand(*batch, *shape, generator=generator, dtype=self.dtype)
            found.append(bl.Linf(self.low + (self.high - self.low) * unit, self.eps))
        return tuple(found)

    def constants(self) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """The inputs that are not perturbed, by place and by name."""
        by_place = tuple(given(BATCH) for given in self.given)
        return by_place, {name: given(BATCH) for name, given in self.named.items()}


def weights(*shape: int, scale: float = 0.5) -> Tensor:
    """A constant, drawn when the program is built."""
    return scale * torch.randn(*shape)
