"""Products of two perturbed values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.rules.two_sided import Signed
from tests.helpers.watching import watch


@pytest.mark.parametrize("first", [True, False])
def test_products_with_a_side_that_is_not_negative(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As operators they give what the planes give that they stand for, backward, forward and as
    intervals."""
    torch.manual_seed(0)
    weight, other = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)

    def model(x: Tensor) -> Tensor:
        s, t = torch.relu(x @ weight), torch.tanh(x @ other)
        return s @ t if first else t @ s

    x = torch.randn(2, 4, 4, dtype=torch.float64)
    net = bl.capture(model, x)
    region = bl.Linf(x, 0.1)
    signed = watch(monkeypatch, Signed, "of")
    found = {
        method: net.bounds(region, method=method)
        for method in ("ibp", "forward", "crown-ibp", "crown")
    }
    refused: list[str] = []
    monkeypatch.setattr(Signed, "of", lambda *_: refused.append(method))
    for method, bounds in found.items():
        expected = net.bounds(region, method=method)
        torch.testing.assert_close(bounds.lower, expected.lower)
        torch.testing.assert_close(bounds.upper, expected.upper)
    assert any(form is not None for form in signed) and set(refused) == set(found)
