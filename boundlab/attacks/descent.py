"""Moving points of a region along the gradient of a loss."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.regions import Region

FIRST, LAST = 0.5, 0.01
"""The sizes of the first and of the last step, in units of the region."""


def vertex(region: Region, slope: Tensor) -> Tensor:
    """The member at which <slope, x> is least, (samples, *shape), one sample each.

    The minimum over a set is a concave function of the slope, and its gradient there is the point
    where it is attained (the envelope theorem).
    """
    with torch.enable_grad():
        coefficients = slope.detach().unsqueeze(0).requires_grad_()
        (found,) = torch.autograd.grad(region.minimum(coefficients).sum(), coefficients)
    return found.squeeze(0)


def step_size(step: int, steps: int) -> float:
    """Geometric from the first to the last."""
    return FIRST * (LAST / FIRST) ** (step / max(steps - 1, 1))


def moved(region: Region, x: Tensor, slope: Tensor, goal: Tensor, step: int, steps: int) -> Tensor:
    """Points one step further down their slopes. goal: the vertices of the slopes.

    Where members near a point are known (``project``), along the steepest direction of the region's
    own norm: half the way from the vertex that is highest to the one that is lowest. Where a valid
    range cuts the region that is not the way from its centre: an element whose clean value is an
    end of the range must be able to go back there. Otherwise towards the vertex, as far as Frank
    and Wolfe go, which stays inside of a convex region.
    """
    half = (goal - vertex(region, -slope)) / 2
    further = region.project(x + step_size(step, steps) * half)
    if further is not None:
        return further
    return x + 2 / (step + 2) * (goal - x)


def knows_members(region: Region) -> bool:
    """Whether a region can tell which points are its members."""
    return type(region).contains is not Region.contains


def pulled_inside(region: Region, x: Tensor) -> tuple[Tensor, Tensor]:
    """Points (samples, *shape) that rounding has left on the wrong side of a border, moved towards
    the centre until they are members; and which are: (samples,). Of a region that cannot tell they
    are taken for members: they are ones that it named itself."""
    if not knows_members(region):
        return x, torch.ones(len(x), dtype=torch.bool, device=x.device)
    shape = (-1, *[1] * (x.dim() - 1))
    near = region.project(x)
    x = x if near is None else near
    member = region.contains(x)
    for bits in (22, 18, 14, 10):
        if bool(member.all()):
            break
        closer = region.centre + (x - region.centre) * (1 - 2.0**-bits)
        x = torch.where(member.reshape(shape), x, closer)
        member = region.contains(x)
    return x, member
