"""Intervals as middle and radius."""

from __future__ import annotations

import torch

from boundlab.relaxations.interval import MidRad
from tests.helpers.tensors import draw


def test_a_ball_knows_its_ends_whoever_asks() -> None:
    centre, radius = draw(3).requires_grad_(), draw(3, seed=1).abs()
    x = MidRad(centre, radius)
    assert (x.shape, x.dtype, x.device) == (
        centre.shape,
        centre.dtype,
        centre.device,
    ) and x.ball == (x.centre, x.radius)
    with torch.no_grad():
        assert not (x.lower > x.upper).any()
    (gradient,) = torch.autograd.grad(x.lower.sum(), centre)
    torch.testing.assert_close(gradient, torch.ones(3, dtype=torch.float64))
