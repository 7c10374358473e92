"""Tangents of S-shaped functions: the table against bisection, and the lines that come of it
against the function."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.rules import curves
from boundlab.rules.elementwise import Elementwise
from boundlab.rules.registry import RULES, aten
from boundlab.rules.touching import LARGEST, SMALLEST, Touching

FUNCTIONS = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "atan": torch.atan,
    "erf": torch.erf,
    "asinh": torch.asinh,
}


def curve_of(name: str) -> curves.Curve:
    rule = RULES[getattr(aten, name)]
    assert isinstance(rule, Elementwise)
    return rule.curve()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_points_of_the_table_are_below_the_exact_ones_and_near(name: str) -> None:
    table, f = curve_of(name).touching, FUNCTIONS[name]
    assert isinstance(table, Touching)
    u = torch.logspace(-5, 3, 50_001, dtype=torch.float64)
    found, exact = table(u), table._exact(u)
    assert (u[-1] < LARGEST) and (u[0] < SMALLEST)
    inside = u > SMALLEST * 1.01  # further down bisection meets rounding errors only
    gap = ((exact - found) / u)[inside]
    assert gap.min() > -1e-6 and gap.max() < 1e-4
    height = f(found) + table.df(found) * (u - found) - f(u)
    assert height.max() < 1e-15 and height.min() > -1e-4
    assert (
        torch.isposinf(table(torch.tensor([-1.0, 0.0]))).all()
        and torch.isneginf(table(torch.tensor([2 * LARGEST]))).all()
    )


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scale", [1e-6, 1e-2, 1.0, 20.0, 3000.0])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_lines_hold_and_lose_nothing_against_bisection(
    name: str, scale: float, kind: torch.dtype
) -> None:
    f, curve = FUNCTIONS[name], curve_of(name)
    torch.manual_seed(0)
    ends = (scale * (2 * torch.rand(2, 2000, dtype=kind) - 1)).sort(0).values
    ends[:, :50] = ends[:1, :50]  # no width
    x = Interval(ends[0], ends[1])
    (a, b), (c, d) = curves.lines(f, curve, x)
    points = torch.lerp(
        ends[:1].double(),
        ends[1:].double(),
        torch.linspace(0, 1, 201, dtype=torch.float64)[:, None],
    )
    values, room = f(points), 4 * torch.finfo(kind).eps * (1 + scale)
    assert (a.double() * points + b.double() <= values + room).all()
    assert (c.double() * points + d.double() >= values - room).all()
    (e, g), (h, k) = curves.lines(f, replace(curve, touching=None), x)
    middle = x.centre
    assert ((e * middle + g) - (a * middle + b)).max() <= 1e-5 + room
    assert ((c * middle + d) - (h * middle + k)).max() <= 1e-5 + room


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_lines(name: str) -> None:
    """Slopes and intercepts against differences, for intervals of every kind: convex, concave,
    limited by u, and chords."""
    f, curve = FUNCTIONS[name], curve_of(name)
    lower = torch.tensor([-3.0, 0.5, -2.0, -0.3, -4.0, -0.2], dtype=torch.float64)
    upper = torch.tensor([-0.5, 2.0, 0.7, 2.5, 0.1, 4.0], dtype=torch.float64)

    def at(l: Tensor, u: Tensor) -> Tensor:
        (a, b), (c, d) = curves.lines(f, curve, Interval(l, u))
        return torch.stack([a, b, c, d])

    l, u = lower.clone().requires_grad_(), upper.clone().requires_grad_()
    weights = torch.randn(
        4, len(lower), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    (weights * at(l, u)).sum().backward()
    step = 1e-4
    for value, grad in ((lower, l.grad), (upper, u.grad)):
        moved = [
            at(*(end + sign * step * (end is value) for end in (lower, upper))) for sign in (1, -1)
        ]
        torch.testing.assert_close(
            grad, (weights * (moved[0] - moved[1])).sum(0) / (2 * step), atol=2e-3, rtol=2e-3
        )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_families_hold_at_and_around_the_last_touching_point(name: str) -> None:
    """Intervals that begin between the point of the table and the exact one: there the chord is not
    a lower line yet."""
    f, curve = FUNCTIONS[name], curve_of(name)
    table = curve.touching
    assert isinstance(table, Touching)
    u = torch.logspace(-2, 2, 400, dtype=torch.float64)
    exact, found = table._exact(u), table(u)
    for share in (-1.0, 0.0, 0.3, 0.7, 1.0, 2.0):
        l = torch.lerp(found, exact, share)
        # close to l
        points = torch.lerp(l, u, torch.linspace(0, 1, 801, dtype=torch.float64)[:, None] ** 3)
        start, member = curves.lower_family(f, curve, Interval(l, u))
        for alpha in (torch.zeros_like(u), start, torch.ones_like(u)):
            slope, intercept = member(alpha)
            assert (slope * points + intercept - f(points)).max() < 1e-14
