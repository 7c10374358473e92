"""Norms by the names that users give them."""

from __future__ import annotations

import math

import pytest

import boundlab as bl
from boundlab.regions.norms import NORMS, norm_named

NAMES = {
    "inf": ("inf", "Linf", "linf", "l_inf", "L-inf", "infinity", "l\u221e", math.inf),
    "2": ("2", "L2", "l2", 2, 2.0),
    "1": ("1", "l1", 1, 1.0),
}


@pytest.mark.parametrize("name", NORMS)
def test_names(name: str) -> None:
    assert {norm_named(given) for given in NAMES[name]} == {name}


@pytest.mark.parametrize("wrong", ["0", "3", "l", "", None, 1.5, -math.inf])
def test_what_is_no_norm(wrong: object) -> None:
    with pytest.raises(bl.ArgumentError, match="norm must be one of 'inf', '2', '1', not"):
        norm_named(wrong)
