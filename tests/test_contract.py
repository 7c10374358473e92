"""The contract itself: what it must find, it finds."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import boundlab as bl
from tests.helpers import contract


def test_a_small_error_beside_a_large_value_is_found() -> None:
    value = torch.tensor([[1e4, 1.0]])
    error = torch.tensor([[0.0, 1e-3]])
    contract.assert_inside(value, value, value, "exact")
    with pytest.raises(AssertionError, match="below the lower bound"):
        contract.assert_inside(value, value + error, value + 1, "lower")
    with pytest.raises(AssertionError, match="above the upper bound"):
        contract.assert_inside(value, value - 1, value - error, "upper")
    with pytest.raises(AssertionError, match="apart"):
        contract.assert_close(value, value + error)


def test_looser_bounds_are_found_beside_infinite_ones() -> None:
    outer = bl.Bounds(torch.tensor([-torch.inf, 0.0]), torch.tensor([torch.inf, 1.0]))
    contract._check_nested(outer, outer, "itself")
    for low, high in ((-0.1, 1.0), (0.0, 1.1), (torch.nan, 1.0)):
        inner = bl.Bounds(torch.tensor([0.0, low]), torch.tensor([0.0, high]))
        with pytest.raises(AssertionError, match="inside"):
            contract._check_nested(inner, outer, "inside")


def test_only_one_cause_of_refused_lines_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(2, 3)
    region = bl.Linf(x, 0.1)
    contract.check_sound(lambda x: torch.ones_like(x), (region,), methods=("ibp",))

    def refuse(*_: object) -> None:
        raise bl.ArgumentError(message)

    monkeypatch.setattr(bl.Net, "linear_bounds", refuse)
    message = "something else"
    with pytest.raises(bl.ArgumentError, match="something else"):
        contract.check_sound(nn.Linear(3, 2), (region,), methods=("ibp",))
    message = "the output does not depend on anything that is perturbed"
    with pytest.raises(AssertionError):  # though it does
        contract.check_sound(nn.Linear(3, 2), (region,), methods=("ibp",))
