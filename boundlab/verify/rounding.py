"""How far the rounding of a model moves its outputs.

Bounds are of the model in double precision, and verdicts are about the model as it is executed. The
difference is measured at points, with room to spare: at first at random members and vertices, later
wherever the search looks. That is no proof: a model may round more where nobody looked.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from boundlab.attacks.descent import vertex
from boundlab.attacks.targets import Target
from boundlab.methods.deadline import check_time
from boundlab.regions import Region

POINTS = 256
"""Random inputs at which the rounding of the model is measured."""
VERTICES = 64
"""Vertices at which it is measured too."""
VALUES = 1 << 16
"""Elements of the inputs at which it is measured at once."""
FLOOR = 1e-10
"""What bounds in double precision may be off, as a share of what they are of."""
FINER = 2.0**-29
"""How much less double precision rounds than single precision."""


def in_double(model: nn.Module) -> nn.Module:
    """A copy of the model in double precision."""
    return copy.deepcopy(model).double()


class Rounding:
    """target: the model itself; exact: its copy in double precision. What double precision rounds
    is told from what single precision does: a model in double precision has no better copy."""

    def __init__(self, model: nn.Module, exact: nn.Module, like: Tensor) -> None:
        self.target = Target(model, like)
        self.exact = Target(exact, like)
        self.single: Target | None = None
        if self.target.dtype == torch.float64:
            self.single = Target(copy.deepcopy(model).float(), like)

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """How far outputs y of the model at inputs x are from exact ones: (points, outputs)."""
        true = self.exact(x.double())
        moved = (y.double() - true).abs() + FLOOR * true.abs()
        if self.single is None:
            return moved
        coarse = FINER * (self.single(x).double() - true).abs()
        return moved + coarse.nan_to_num(0.0, 0.0, 0.0)  # single precision may overflow

    @torch.no_grad()
    def largest(self, x: Tensor) -> Tensor:
        """The most at inputs x, a few at a time: (1, outputs). TimeLimit if that takes too long."""
        found = []
        for part in x.split(max(VALUES // max(x[0].numel(), 1), 1)):
            check_time()
            found.append(self(part, self.target(part)).amax(0, keepdim=True))
        return torch.cat(found).amax(0, keepdim=True)


def looked_at(region: Region, generator: torch.Generator) -> Tensor:
    """Random members, vertices, and the centre: (points, *shape)."""
    members: Sequence[Tensor] = [region.sample(generator) for _ in range(POINTS)]
    corners = [
        vertex(region, torch.randn(one.shape, generator=generator).to(one))
        for one in members[:VERTICES]
    ]
    return torch.cat([*members, *corners, region.centre])
