"""Loss surfaces around the weights of a network, as maps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.patches import Circle
from torch import Tensor

from boundlab.plot.style import figure, save, styled, ticks_at

LEVELS = 10
"""Colours from the least to the greatest loss."""
LEAST = 1e-6
"""Losses below are drawn as this, on a logarithmic scale."""


def loss_surfaces(
    surfaces: Mapping[str, tuple[Tensor, float]], reach: float, path: Path | str
) -> None:
    """Draw losses around the weights side by side, each with the ball for which a bound of the loss
    is certified, into a file.

    surfaces: by title the losses (points, points), along the gradient and along a random direction,
    and the certified bound of the loss over the ball of radius 1. reach: how far the losses go, in
    radii of the ball.
    """
    made, axes = figure(len(surfaces), 3.3 * len(surfaces) + 0.8, 3.4)
    values = {title: loss.clamp(min=LEAST) for title, (loss, _) in surfaces.items()}
    low = min(float(loss.min()) for loss in values.values())
    high = max(float(loss.max()) for loss in values.values())
    levels = np.geomspace(low, max(high, 1.001 * low), LEVELS + 1)
    for ax, (title, loss) in zip(axes, values.items(), strict=True):
        at = torch.linspace(-reach, reach, len(loss)).numpy()
        # rows of losses go along the gradient, which is drawn to the right
        areas = ax.contourf(at, at, loss.T.numpy(), levels, norm=LogNorm(), cmap="cividis")
        ax.add_patch(Circle((0, 0), 1.0, fill=False, edgecolor="white", linewidth=1.4))
        ax.set(xlabel="along the gradient (radii)", aspect="equal")
        ax.set_title(f"{title}: at most {surfaces[title][1]:.3g} in the circle", loc="left")
        ax.grid(False)
    axes[0].set_ylabel("random direction (radii)")
    with styled():
        scale = made.colorbar(areas, ax=axes, label="mean loss (nats)", shrink=0.9)
    ticks_at(scale.ax.yaxis, _round_values(low, high))
    save(made, path)


def _round_values(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten between two losses, powers alone where they are far apart."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(powers) > 4 else (1, 2, 5)
    values = [step * 10.0**power for power in powers for step in steps]
    return [value for value in values if low <= value <= high]
