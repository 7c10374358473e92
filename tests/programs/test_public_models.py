"""Public model classes with tiny random configurations: bounds hold for members of a region."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import boundlab as bl
from benchmarks.models import ELEMENTS, reached
from benchmarks.public_models import MODELS
from tests.helpers.contract import assert_all_inside, members

pytest.importorskip("transformers", reason="public models are classes of transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # what other packages warn of is not ours
]
EPS = 0.001
REFUSED = {"FNet": "aten.fft_fftn", "Mixtral": "aten.sort"}
"""Model -> the operator that has no rule, or lets samples meet: experts sort all tokens at once."""


def bounded(name: str, method: str) -> tuple[bl.Linf, Any]:
    model, x = MODELS[name].build(), MODELS[name].example()
    region = bl.Linf(x, EPS)
    with torch.no_grad():
        return region, bl.capture(model, x).bounds(region, method=method)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in REFUSED])
def test_bounds_hold(name: str) -> None:
    region, bounds = bounded(name, "crown")
    model = MODELS[name].build()
    with torch.no_grad():
        values = torch.stack([model(point) for point in members(region, 6, seed=0)])
    assert_all_inside(values, bounds.lower, bounds.upper, name)
    elements = torch.linspace(0, values.shape[-1] - 1, ELEMENTS).long()
    width = (bounds.upper - bounds.lower)[0, elements]
    truth = reached(model, region, elements)
    assert (truth <= width * (1 + 1e-3) + 1e-6).all()
    assert width.mean() <= 4 * truth.mean()


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_refused_is_named(name: str) -> None:
    with pytest.raises(bl.BoundlabError, match=REFUSED[name]):
        bounded(name, "ibp")
