"""Properties: conditions, their unsafe sets, and what counts as a violation."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.specs.formula import And, Formula, Or
from boundlab.specs.property import Symbols
from boundlab.specs.vnnlib import parse_vnnlib


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


def _linear(y: Symbols) -> Formula:
    terms = [(i + 1) * y[:, i] for i in range(20)]
    return sum(terms[1:], terms[0]) > 0


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (lambda y: (y[:, 0] > y[:, 1]) | (y[:, 2] <= 3), "y1 < y0 or y2 <= 3"),
        (lambda y: ~((y[:, 0] > 1) & (y[:, 1] >= -2)), "y0 <= 1 or y1 < -2"),
        (lambda y, x: y[:, 0] - 2 * x[:, 1] >= -0.5, "2 x1 <= y0 + 0.5"),
        (
            lambda y: (y[:, 0] > 0) & ((y[:, 1] > 0) | (y[:, 2] > 0)),
            "y0 > 0 and (y1 > 0 or y2 > 0)",
        ),
        (lambda y: y[:, 0] - y[:, 0] <= 1, "0 >= -1"),
        (_linear, "y0 + 2 y1 + 3 y2 + 4 y3 + 5 y4 + 6 y5 + 14 more terms > 0"),
        (lambda y: Or(tuple(y[:, i] > i for i in range(50))), "y4 > 4 or y5 > 5 or 44 more"),
        (lambda y: y[:, -1] > 0, "the condition holds"),
        (lambda y: And(tuple(one > 0 for one in y)), "the condition holds"),
        (lambda y: y[:, len(y) - 1] > 0, "the condition holds"),
        (lambda y: And(()), ": true"),
    ],
)
def test_a_property_prints_what_must_hold(condition: Callable[..., Formula], said: str) -> None:
    text = str(bl.Property(_box(), condition))
    assert text.startswith("for every x in Box(lower=(1, 2) in [0, 0], upper=(1, 2) in [1, 1]): ")
    assert text.endswith(said)


def test_properties_of_files_print_their_unsafe_sets() -> None:
    declared = "".join(f"(declare-const {v} Real)" for v in ("X_0", "Y_0", "Y_1"))
    box = declared + "(assert (>= X_0 0)) (assert (<= X_0 1))"
    text = str(parse_vnnlib(box + "(assert (<= Y_0 Y_1)) (assert (or (>= Y_0 2) (< X_0 Y_0)))"))
    assert (
        text
        == "for no x in Box(lower=0, upper=1): (y0 <= y1 and y0 >= 2) or (y0 <= y1 and x0 < y0)"
    )
    cases = " ".join(f"(and (>= X_0 0.0{i}) (<= Y_0 {i}))" for i in range(10, 30))
    lines = str(parse_vnnlib(box + f"(assert (or {cases}))")).splitlines()
    assert len(lines) == 6
    assert lines[0] == "for no x in Box(lower=0.01, upper=1): y0 <= 10"
    assert lines[-1] == "... and 15 more"
    assert str(parse_vnnlib(box + "(assert (>= X_0 2))")) == "nothing is unsafe"
    assert str(bl.robust(_box(), label=2)).endswith("]): output 2 is larger than all others")


def test_regions_print_in_a_line() -> None:
    x = torch.linspace(0, 1, 3072).reshape(1, 3, 32, 32)
    words = bl.Words(torch.zeros(1, 2, 3), torch.ones(1, 2, 4, 3), torch.ones(1, 2, 4) > 0, 1)
    expected = {
        "Box(lower=(1, 3, 32, 32) in [0, 1], upper=(1, 3, 32, 32) in [1, 2])": bl.Box(x, x + 1),
        "Linf(x=(1, 3, 32, 32) in [0, 1], eps=0.1, upper=1)": bl.Linf(x, 0.1, upper=1),
        "Linf(eps=0.1)": bl.Linf(eps=0.1),
        "L2(x=0, eps=0.5)": bl.L2(torch.zeros(1, 1, requires_grad=True), torch.tensor([0.5])),
        "Lp(x=(1, 3, 32, 32) in [0, 1], p=3, eps=0.5)": bl.Lp(x, 3.0, 0.5),
        "L0(x=(1, 3, 32, 32) in [0, 1], k=2, lower=0, upper=1)": bl.L0(x, 2),
        "Words(x=(1, 2, 3) in [0, 0], substitutes=(1, 2, 4, 3) in [1, 1], allowed=(1, 2, 4), "
        "budget=1, eps=1)": words,
    }
    assert {str(region): region for region in expected.values()} == expected


def test_outputs_that_a_condition_does_not_name_may_be_anything() -> None:
    prop = bl.Property(bl.Box(torch.zeros(1, 2), torch.ones(1, 2)), lambda y: y[:, 0] < 1)
    x = torch.full((4, 2), 0.5)
    y = torch.tensor([[2.0, torch.inf], [2.0, torch.nan], [torch.nan, 0.0], [torch.inf, 0.0]])
    assert prop.violated(x, y).tolist() == [True, True, False, True]
