"""How far the rounding of a model moves its outputs.

Bounds are of the model in double precision, and verdicts are about the model as it is executed. The
difference is measured at points, with room to spare: at first at random members and vertices, later
wherever the search looks. That is no proof: a model may round more where nobody looked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from boundlab.attacks.descent import vertex
from boundlab.attacks.targets import Target
from boundlab.methods.deadline import check_time
from boundlab.regions import Box, Region
from boundlab.verify.copies import copied

POINTS, FEWEST = 256, 32
"""Random inputs of each region at which the rounding of the model is measured, and how many they
are at least where there are many regions."""
IN_ALL = 1 << 13
"""Random inputs of all regions together up to which each gets as many as it should."""
CORNERS = 4
"""It is measured at a vertex for each so many random inputs."""
VALUES = 1 << 16
"""Elements of the inputs at which it is measured at once."""
DRAWN = 1 << 20
"""Elements of the inputs that are drawn at once."""
FLOOR = 1e-10
"""What bounds in double precision may be off, as a share of what they are of."""
FINER = 2.0**-29
"""How much less double precision rounds than single precision."""


def in_double(model: nn.Module) -> nn.Module:
    """A copy of the model in double precision."""
    return copied(model).double()


class Rounding:
    """target: the model itself; exact: its copy in double precision. What double precision rounds
    is told from what single precision does: a model in double precision has no better copy."""

    def __init__(self, model: nn.Module, exact: nn.Module, like: Tensor) -> None:
        self.target = Target(model, like)
        self.exact = Target(exact, like)
        self.single: Target | None = None
        if self.target.dtype == torch.float64:
            self.single = Target(copied(model).float(), like)

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
        """The most at some inputs of each region, (regions, points, *shape), a few at a time:
        (regions, outputs). TimeLimit if that takes too long."""
        found = []
        flat = x.flatten(0, 1)
        for part in flat.split(max(VALUES // max(flat[0].numel(), 1), 1)):
            check_time()
            found.append(self(part, self.target(part)))
        return torch.cat(found).unflatten(0, x.shape[:2]).amax(1)


def points_of_each(regions: int) -> int:
    """How many random inputs each of some regions gets."""
    return min(max(IN_ALL // regions, FEWEST), POINTS)


def together(regions: Sequence[Region], points: int) -> Iterator[Region]:
    """Regions of one sample each, as far as they are boxes as fewer regions of several samples."""
    count = max(DRAWN // (points * max(regions[0].centre.numel(), 1)), 1)
    for first in range(0, len(regions), count):
        part = regions[first : first + count]
        boxes = [one for one in part if isinstance(one, Box)]
        if len(boxes) == len(part):
            lower, upper = [one.lower for one in boxes], [one.upper for one in boxes]
            yield Box(torch.cat(lower), torch.cat(upper))
        else:
            yield from part


def looked_at(region: Region, points: int, generator: torch.Generator) -> Tensor:
    """Random members of each sample of a region, vertices, and the centre: (samples, points,
    *shape)."""
    centre = region.centre
    found = [centre.unsqueeze(1)]
    for count, at_corners in ((points, False), (max(points // CORNERS, 1), True)):
        owner = torch.arange(len(centre)).repeat_interleave(count)
        drawn = [_drawn(one, at_corners, generator) for one in _copies(region, owner)]
        found.append(torch.cat(drawn).unflatten(0, (len(centre), count)))
    return torch.cat(found, 1)


def _copies(region: Region, owner: Tensor) -> list[Region]:
    """The samples of a region that are named, together if it can be taken apart."""
    copies = region.samples(owner)
    return [region] * len(owner) if copies is None else [copies]


def _drawn(region: Region, at_corners: bool, generator: torch.Generator) -> Tensor:
    """A random member of each sample, or a vertex."""
    if not at_corners:
        return region.sample(generator)
    slope = torch.randn(region.centre.shape, generator=generator).to(region.centre)
    return vertex(region, slope)
