"""The clean pass, shared by the loss and the bounds."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from boundlab.losses.clean_pass import CleanPass
from tests.helpers.models import image_batch, small_cnn


def test_the_clean_pass_is_shared() -> None:
    """The same loss and gradients with and without it, and running statistics that move once a
    step."""
    model = small_cnn().train()
    x, y = image_batch(9, 5)
    net = bl.capture(model, x)
    before = model[1].num_batches_tracked.clone()
    with CleanPass(net) as seen:
        model(x)
    assert model[1].num_batches_tracked == before + 1
    assert seen.values is not None and list(seen.values)
    shared = bl.robust_cross_entropy(net, bl.Linf(x, 0.05), y, clean=seen.values).sum()
    apart = bl.robust_cross_entropy(net, bl.Linf(x, 0.05), y).sum()
    assert model[1].num_batches_tracked == before + 1
    parameters = list(model.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(shared, parameters), torch.autograd.grad(apart, parameters)
    )


class Twice(nn.Module):
    """A module that normalises twice, so that its path does not say which is which."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2).double()
        for name in ("mean", "variance", "other_mean", "other_variance"):
            self.register_buffer(
                name, torch.full((3,), float("variance" in name), dtype=torch.float64)
            )

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(F.batch_norm(x, self.mean, self.variance, training=True))
        return self.linear(F.batch_norm(x, self.other_mean, self.other_variance, training=True))


def test_statistics_of_an_unclear_place_are_computed_again() -> None:
    model, x, y = (
        Twice().train(),
        torch.rand(4, 3, dtype=torch.float64),
        torch.zeros(4, dtype=torch.long),
    )
    net = bl.capture(model, x)
    with CleanPass(net) as seen:
        logits = model(x)
    assert seen.values is None
    loss = bl.robust_cross_entropy(net, bl.Linf(x, 0.0), y, clean=seen.values)
    torch.testing.assert_close(loss, F.cross_entropy(logits, y, reduction="none"))
