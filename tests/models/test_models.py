"""Networks for images."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import boundlab as bl
from boundlab.models import MODELS, build

# -- networks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "classes", "channels"), [(32, 10, 3), (56, 200, 3), (28, 7, 1)])
@pytest.mark.parametrize("name", MODELS)
def test_networks_for_any_image_and_number_of_classes(
    name: str, size: int, classes: int, channels: int
) -> None:
    if "wide" in name and size == 56:
        pytest.skip("widen factor 10: as the others, but slow")
    model = build(name, channels, size, classes, (0.5,) * channels, (0.25,) * channels).eval()
    assert model(torch.rand(2, channels, size, size)).shape == (2, classes)
    grey = torch.full((1, channels, size, size), 0.5)
    assert not model[0](grey).any()


@pytest.mark.parametrize("name", MODELS)
def test_networks_can_be_bounded_in_train_mode(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, 3, 16, 4, (0.5,) * 3, (0.25,) * 3).train()
    x, y = torch.rand(2, 3, 16, 16), torch.tensor([1, 3])
    net = bl.capture(model, x)
    losses = [
        bl.robust_cross_entropy(net, bl.Linf(x, eps, lower=0.0, upper=1.0), y)
        for eps in (0.0, 1e-4)
    ]
    torch.testing.assert_close(
        losses[0], nn.functional.cross_entropy(model(x), y, reduction="none"), rtol=1e-4, atol=1e-4
    )
    assert (losses[1] >= losses[0] - 1e-4).all()
    losses[1].sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_no_such_network() -> None:
    with pytest.raises(bl.ArgumentError, match="small-cnn"):
        build("cnn", 1, 28, 10)
