"""A function of one variable between its linear bounds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from boundlab.errors import ArgumentError
from boundlab.methods.method import Method
from boundlab.net import capture
from boundlab.plot.style import FILL, INK, LOWER, UPPER, given_or_new
from boundlab.regions import Box

POINTS = 257
"""Of the curve."""


class _Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def relaxation(
    function: Callable[[Tensor], Tensor],
    lower: float,
    upper: float,
    *,
    method: str | Method = "crown",
    slopes: str = "adaptive",
    ax: Axes | None = None,
) -> Axes:
    """Draw a function of one variable, and the linear bounds that a method finds for it on
    [lower, upper].

    function: takes and returns a tensor of any shape, such as torch.relu or
    ``lambda x: x * torch.sin(x)``. The lines are those of ``net.linear_bounds``, so this shows what
    is computed, not what a book says. slopes: the lower line of a ReLU,
    "adaptive", "zero", "one" or "same".
    """
    if not lower < upper:
        raise ArgumentError(f"the interval needs lower < upper, got {lower} and {upper}")
    ends = torch.tensor([[lower], [upper]], dtype=torch.float64)
    net = capture(_Function(function), ends[:1])
    with torch.no_grad():
        lines = net.linear_bounds(Box(ends[:1], ends[1:]), method=method, slopes=slopes)
        more = 0.25 * (upper - lower)
        x = torch.linspace(lower - more, upper + more, POINTS, dtype=torch.float64)[:, None]
        y = function(x)
    ax = given_or_new(ax)
    at = ends[:, 0].tolist()
    below, above = [
        [float(slope.reshape(()) * end + offset.reshape(())) for end in at]
        for slope, offset in (
            (next(iter(lines.lower_A.values())), lines.lower_b),
            (next(iter(lines.upper_A.values())), lines.upper_b),
        )
    ]
    ax.fill_between(at, below, above, color=INK, alpha=FILL / 2, linewidth=0)
    ax.plot(x[:, 0], y[:, 0], color=INK, linestyle="-", label="function")
    ax.plot(at, above, color=UPPER, linestyle="-", label="upper line")
    ax.plot(at, below, color=LOWER, linestyle="-", label="lower line")
    for end in at:
        ax.axvline(end, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
    ax.set_xlabel("x")
    return ax
