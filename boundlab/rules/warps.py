"""Images sampled along a grid: affine in the image, while the grid stays as it is.

Every sample has one matrix for all of its channels, y_c = W x_c. Weights of bilinear and nearest
sampling are non-negative, so the operator serves as its own |W|; those of bicubic sampling have
both signs, and W is what the operator makes of the images with a single 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.errors import UnsupportedOperator
from boundlab.rules.affine import Affine
from boundlab.rules.facts import Facts
from boundlab.rules.registry import Call, aten, register

BICUBIC = 2
"""torch's number for the mode."""


@dataclass(frozen=True, eq=False)
class Warp(Affine):
    """The rule of ``grid_sampler``."""

    def _check(self, call: Call) -> None:
        if call.positions != (0,):
            raise UnsupportedOperator(
                f"{call.node}: its grid depends on what is perturbed; only constant grids have a "
                "rule"
            )

    def _absolute(self, call: Call) -> Callable[..., Tensor] | None:
        if call["interpolation_mode"] != BICUBIC:
            return None
        shape = call.inputs[0].shape
        count = math.prod(shape[2:])
        # (samples, pixels, *size): one image with a single 1 for each pixel, as a channel
        eye = torch.eye(count, dtype=call.inputs[0].dtype, device=call.inputs[0].lower.device)
        single = eye.reshape(1, count, *shape[2:]).expand(shape[0], *[-1] * (len(shape) - 1))
        weights = call.bind()(single).abs()

        def absolute(radius: Tensor) -> Tensor:
            found = radius.flatten(2) @ weights.flatten(2)
            return found.reshape(*radius.shape[:2], *weights.shape[2:])

        return absolute


register(aten.grid_sampler_2d, aten.grid_sampler_3d, rule=Warp(facts=Facts(linear=True)))
