"""How far a model rounds is measured in every region, however many there are."""

from __future__ import annotations

import torch
from torch import nn

import boundlab as bl
from boundlab.specs.vnnlib import parse_vnnlib
from boundlab.verify.bound import CASES
from boundlab.verify.rounding import (
    CORNERS,
    FEWEST,
    IN_ALL,
    POINTS,
    Rounding,
    in_double,
    looked_at,
    points_of_each,
    together,
)

MANY = 3 * CASES + 5


def boxes(count: int) -> list[bl.Box]:
    torch.manual_seed(0)
    centres = 10 * torch.randn(count, 1, 2, dtype=torch.float64)
    return [bl.Box(x - 0.1, x + 0.2) for x in centres]


def staircase(count: int, below: float) -> bl.Property:
    """Over [i, i + 1], for each i, the output is above i + below."""
    parts = [f"(and (>= X_0 {i}) (<= X_0 {i + 1}) (<= Y_0 {i + below}))" for i in range(count)]
    declared = "(declare-const X_0 Real) (declare-const Y_0 Real)"
    return parse_vnnlib(f"{declared} (assert (or {' '.join(parts)}))")


def test_few_regions_get_all_points_and_many_not_too_few() -> None:
    assert points_of_each(1) == points_of_each(IN_ALL // POINTS) == POINTS
    assert points_of_each(10**6) == FEWEST


def test_points_lie_in_the_region_that_they_are_for() -> None:
    given = boxes(7)
    (joined,) = together(given, FEWEST)
    found = looked_at(joined, FEWEST, torch.Generator().manual_seed(0))
    assert found.shape == (7, FEWEST + FEWEST // CORNERS + 1, 2)
    for region, points in zip(given, found, strict=True):
        assert region.contains(points, tolerance=1e-12).all()
        assert len(points.unique(dim=0)) > FEWEST
        at_ends = torch.isclose(points, region.lower) | torch.isclose(points, region.upper)
        assert at_ends.all(1).sum() >= FEWEST // CORNERS


def test_regions_of_other_kinds_are_looked_at_one_by_one() -> None:
    x = torch.zeros(1, 3)
    given = [bl.Box(x, x + 1), bl.L2(x, 0.5), bl.Box(x - 1, x)]
    parts = list(together(given, POINTS))
    assert parts == given
    ball = looked_at(parts[1], POINTS, torch.Generator().manual_seed(0))[0]
    assert (ball.norm(dim=1) <= 0.5 + 1e-6).all()


def test_each_region_has_its_own_largest_rounding() -> None:
    """A model that rounds far more at large inputs."""
    torch.manual_seed(0)
    model = nn.Linear(2, 3).eval()
    small, large = torch.rand(5, 2), 1e6 * torch.rand(5, 2)
    found = Rounding(model, in_double(model), small[:1]).largest(torch.stack([small, large]))
    alone = Rounding(model, in_double(model), small[:1])
    for points, most in zip((small, large), found, strict=True):
        torch.testing.assert_close(most, alone(points, model(points)).amax(0))
    assert (found[1] > 1e3 * found[0]).all()


def test_many_cases_are_bounded_more_and_more_at_once() -> None:
    """The identity, as a network that is not affine."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU()).eval()
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.fill_(0.0)
    verdict = bl.verify(model, staircase(MANY, -0.5), timeout=30)
    assert verdict.status == "holds"
    assert verdict.domains == MANY
    broken = bl.verify(model, staircase(MANY, 0.001), timeout=30)
    assert broken.status == "violated"
