"""Mean and variance of channels, with the gradient written out."""

from __future__ import annotations

import torch

from boundlab.kernels.moments import moments
from tests.helpers.tensors import draw


def test_moments_of_channels() -> None:
    for shape in ((6, 3), (4, 3, 5), (2, 3, 4, 5)):
        x = draw(*shape).requires_grad_()
        assert torch.autograd.gradcheck(moments, (x,)) and torch.autograd.gradgradcheck(
            moments, (x,)
        )
        dims = [0, *range(2, len(shape))]
        torch.testing.assert_close(
            moments(x), torch.stack([x.mean(dims), x.var(dims, correction=0)])
        )
