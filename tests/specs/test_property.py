"""Properties: conditions, their unsafe sets, and what counts as a violation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import boundlab as bl


def _box(size: int = 2) -> bl.Box:
    return bl.Box(torch.zeros(1, size), torch.ones(1, size))


def test_a_condition_says_what_must_hold() -> None:
    """Violations are the members of the region where it does not: polarity, in one place."""
    prop = bl.Property(_box(), lambda y: (y[:, 0] > y[:, 1]) | (y[:, 2] <= 3))
    outputs = torch.tensor([[1.0, 0, 9], [0, 1, 3], [0, 1, 4], [1, 1, 4]])
    inside, outside = torch.full((4, 2), 0.5), torch.full((4, 2), 1.5)
    assert prop.violated(inside, outputs).tolist() == [False, False, True, True]
    assert not prop.violated(outside, outputs).any()
    assert prop.violated(outside, outputs, tolerance=0.6).any()


@pytest.mark.parametrize("seed", range(20))
def test_random_conditions_are_judged_as_python_does(seed: int) -> None:
    """And, or and not of comparisons, against the same expression of numbers."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randint(-2, 3, shape, generator=generator).double()
    weights, constants = draw(4, 3), draw(4)
    kinds = torch.randint(0, 4, (4,), generator=generator).tolist()

    def atoms(y: object) -> list[object]:
        found = []
        for row, constant, kind in zip(weights.tolist(), constants.tolist(), kinds, strict=True):
            left = row[0] * y[:, 0] + row[1] * y[:, 1] - row[2] * y[:, 2]  # type: ignore[index]
            found.append(
                [left <= constant, left < constant, left >= constant, left > constant][kind]
            )
        return found

    def condition(y: object) -> object:
        a, b, c, d = atoms(y)
        return ~((a & ~b) | (c & (d | ~a)))  # type: ignore[operator]

    y = draw(200, 3)
    prop = bl.Property(_box(), condition)  # type: ignore[arg-type]
    expected = ~condition(y)  # type: ignore[operator]
    assert torch.equal(prop.violated(torch.full((200, 2), 0.5), y), expected)


def test_robust_is_violated_where_another_class_is_as_large() -> None:
    x = torch.rand(1, 1, 2, 2)
    prop = bl.robust(x, eps=0.1, label=1, lower=0, upper=1)
    outputs = torch.tensor([[0.0, 1, 0], [1, 1, 0], [0, 1, 2], [0, math.nan, 0]])
    assert prop.violated(x.expand(4, -1, -1, -1), outputs).tolist() == [False, True, True, False]
    with pytest.raises(bl.ArgumentError, match="radius"):
        bl.robust(x, label=1)
    with pytest.raises(bl.ArgumentError, match="takes no eps"):
        bl.robust(bl.L2(x, 0.1), 0.1, label=1)


@pytest.mark.parametrize(
    "condition",
    [
        lambda y: True,
        lambda y: y[:, 0],
        lambda y: y[0] > 1,
        lambda y: y[:, 5] > 1,
        lambda y: y[:, 0] * y[:, 1] > 1,
        lambda y: y[:, 0] > math.inf,
        lambda y: y[:, 0] > 1 and y[:, 1] > 1,
        lambda y: 0 < y[:, 0] < 1,
        lambda y: (y[:, 0] > 1) & True,
    ],
)
def test_what_is_no_condition_is_refused(condition: object) -> None:
    with pytest.raises(bl.ArgumentError):
        bl.Property(_box(), condition).cases(3)  # type: ignore[arg-type]


def test_conditions_of_inputs_and_outputs() -> None:
    prop = bl.Property(_box(), lambda y, x: y[:, 0] <= 2 * x[:, 1] + 1)
    x, y = torch.tensor([[0.0, 0.25], [0.0, 0.75]]), torch.tensor([[2.0], [2.0]])
    assert prop.violated(x, y).tolist() == [True, False]


@pytest.mark.parametrize(
    ("region", "inside"),
    [
        (bl.Box(torch.zeros(1, 2), torch.ones(1, 2)), [True, False, False, False]),
        (bl.Linf(torch.zeros(1, 2), 0.5), [True, False, True, False]),
        (bl.L2(torch.zeros(1, 2), 0.5), [False, False, True, False]),
        (bl.L1(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])), [False, False, False, False]),
        (bl.L0(torch.zeros(1, 2), 1), [False, True, False, False]),
    ],
)
def test_members_of_regions(region: bl.Region, inside: list[bool]) -> None:
    points = torch.tensor([[0.5, 0.5], [1.0 + 1e-6, 0.0], [-0.3, -0.3], [math.nan, 0.0]])
    if isinstance(region, bl.L0):
        points[1, 0] = 1.0
    assert region.contains(points).tolist() == inside
    members = torch.cat([region.sample() for _ in range(50)])
    assert region.contains(members, 1e-6).all()


def test_a_region_of_ones_own_must_say_what_its_members_are() -> None:
    class Own(bl.Box):
        def contains(self, x: Tensor, tolerance: float = 0.0) -> Tensor:
            return bl.Region.contains(self, x, tolerance)

    with pytest.raises(bl.ArgumentError, match="contains"):
        Own(torch.zeros(1, 2), torch.ones(1, 2)).contains(torch.zeros(1, 2))
