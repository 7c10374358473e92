"""Public model classes with tiny random configurations: bounds hold for members of a region."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import boundlab as bl
from benchmarks.models import ELEMENTS, reached
from benchmarks.public_models import MODELS, PublicModel
from tests.helpers.contract import assert_all_inside, members

pytest.importorskip("transformers", reason="public models are classes of transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # what other packages warn of is not ours
]
EPS = 0.001


def bounded(public: PublicModel, method: str) -> tuple[bl.Linf, Any]:
    model, x = public.build(), public.example()
    region = bl.Linf(x, EPS)
    with torch.no_grad():
        return region, bl.capture(model, x).bounds(region, method=method)


@pytest.mark.parametrize("name", MODELS)
def test_bounds_hold(name: str) -> None:
    region, bounds = bounded(MODELS[name], "crown")
    model = MODELS[name].build()
    with torch.no_grad():
        values = torch.stack([model(point) for point in members(region, 6, seed=0)])
    assert_all_inside(values, bounds.lower, bounds.upper, name)
    elements = torch.linspace(0, values.shape[-1] - 1, ELEMENTS).long()
    width = (bounds.upper - bounds.lower)[0, elements]
    truth = reached(model, region, elements)
    assert (truth <= width * (1 + 1e-3) + 1e-6).all()
    assert width.mean() <= 4 * truth.mean()


def test_experts_that_sort_the_tokens_of_all_samples_are_refused() -> None:
    """The default of transformers; one token at a time they are bounded, as in the table."""
    experts = MODELS["Mixtral"]
    options = {**experts.options, "experts_implementation": "grouped_mm"}
    with pytest.raises(bl.MixedSamples, match=r"aten.sort.*experts_implementation='batched_mm'"):
        bounded(replace(experts, options=options), "ibp")
