"""Lines of functions of one variable, from what a curve states of their shape."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.rules.curves import Curve, lines, lower_family


def _parabola_that_jumps(x: Tensor) -> Tensor:
    return x * x - (x > 0).to(x.dtype)


def _root_that_jumps(x: Tensor) -> Tensor:
    return -x * x + 2 * (x > 0).to(x.dtype)


def _cube_that_jumps(x: Tensor) -> Tensor:
    return x**3 - 4 * (x > 0.5).to(x.dtype)


def _turned_cube(x: Tensor) -> Tensor:
    return 2 * x - x**3


JUMPING = {
    "convex": (
        _parabola_that_jumps,
        Curve(("convex",), turns=(0.0,), jumps=((0.0, 0.0), (0.0, -1.0))),
    ),
    "concave": (
        _root_that_jumps,
        Curve(("concave",), turns=(0.0,), jumps=((0.0, 0.0), (0.0, 2.0))),
    ),
    "concave, convex": (
        _cube_that_jumps,
        Curve(("concave", "convex"), (0.0,), jumps=((0.5, 0.125), (0.5, -3.875))),
    ),
    "convex, concave, turning": (
        _turned_cube,
        Curve(("convex", "concave"), (0.0,), turns=(-((2 / 3) ** 0.5), (2 / 3) ** 0.5)),
    ),
}


@pytest.mark.parametrize("name", JUMPING)
def test_lines_of_curves_that_jump_or_turn(name: str) -> None:
    """Forms for convex and S-shaped functions were taken for functions with jumps too, whatever
    their curve said of these."""
    f, curve = JUMPING[name]
    l = torch.linspace(-2, 2, 21, dtype=torch.float64)[:, None].expand(21, 21).flatten()
    u = l + torch.linspace(0, 2, 21, dtype=torch.float64).repeat(21)
    x = Interval(l, u)
    points = l + (u - l) * torch.linspace(0, 1, 301, dtype=torch.float64)[:, None]
    values = f(points)
    (low, low_at), (up, up_at) = lines(f, curve, x)
    assert (low * points + low_at <= values + 1e-9).all()
    assert (up * points + up_at >= values - 1e-9).all()
    _, member = lower_family(f, curve, x)
    for alpha in (0.0, 0.3, 1.0):
        slope, intercept = member(torch.full_like(l, alpha))
        assert (slope * points + intercept <= values + 1e-9).all()


def test_the_mirrored_family_keeps_the_turns() -> None:
    """The constant line through the least value is the fallback where a tangent is not finite."""

    def f(x: Tensor) -> Tensor:
        return -_turned_cube(x - 1)

    turns = 1 - (2 / 3) ** 0.5, 1 + (2 / 3) ** 0.5
    infinite = lambda x: torch.full_like(x, torch.inf)
    steep = Curve(("concave", "convex"), (1.0,), turns, derivative=infinite)
    x = Interval(torch.tensor([0.0]), torch.tensor([2.0]))
    _, member = lower_family(f, steep, x)
    slope, intercept = member(torch.tensor([0.5]))
    points = torch.linspace(0, 2, 401)
    assert (slope * points + intercept <= f(points) + 1e-6).all()
