"""A selection of the attack at extreme arguments; all operators with -m slow."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.extreme_entries import PRECISIONS, TABLE, covered
from tests.attacks.extremes import attack, poles_missed

SINGLE, DOUBLE = PRECISIONS
SELECTED = (
    ("sin", DOUBLE), ("cos", SINGLE), ("tan", SINGLE), ("acos", DOUBLE), ("acosh", DOUBLE),
    ("asinh", SINGLE), ("exp", DOUBLE), ("log", SINGLE), ("sigmoid", SINGLE),
    ("softplus, 1.0, 20.0", DOUBLE), ("x / 1e-39", SINGLE), ("hypot, 1e+20", SINGLE),
    ("hypot, 1e-25", SINGLE), ("lerp to 1.0, 1.0", SINGLE), ("remainder, 0.7", SINGLE),
)  # fmt: skip
OPTIMISED = ("acos", "acosh")
UNBOUNDED = ("log", "rsqrt", "reciprocal, positive", "tanh")


def assert_sound(
    name: str, dtype: torch.dtype, count: int, infinite: bool, methods: tuple[str, ...]
) -> None:
    bad = [
        str(tally)
        for tally in attack(name, dtype, count, infinite=infinite, methods=methods)
        if tally.bad
    ]
    assert not bad, "\n" + "\n".join(bad)


def test_every_elementwise_operator_has_an_entry() -> None:
    assert all(covered().values()), covered()


@pytest.mark.parametrize(("name", "dtype"), SELECTED, ids=str)
def test_extreme_arguments(name: str, dtype: torch.dtype) -> None:
    assert_sound(
        name,
        dtype,
        1000,
        False,
        ("ibp", "crown", "alpha-crown") if name in OPTIMISED else ("ibp", "crown"),
    )


@pytest.mark.parametrize("name", UNBOUNDED)
def test_ends_at_infinity(name: str) -> None:
    assert_sound(name, torch.float64, 200, True, ("ibp", "crown"))


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_poles_of_tan(dtype: torch.dtype) -> None:
    missed = poles_missed(dtype, 60)
    assert not missed, missed[:5]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("infinite", [False, True], ids=["", "infinite ends"])
@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_operator(name: str, infinite: bool, dtype: torch.dtype) -> None:
    assert_sound(
        name,
        dtype,
        100_000 if not infinite else 2000,
        infinite,
        ("ibp", "crown", "forward", "alpha-crown"),
    )
