"""All that is worth seeing of training runs, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from boundlab.plot.curves import TITLES, curves
from boundlab.plot.style import END, INK, figure

PANELS = ("clean_loss", "robust_loss", "eps", "clean_error", "not_proved")
"""Columns of a run's metrics, in the order in which they are drawn."""


def panels(runs: Sequence[Path]) -> Figure:
    """A figure with curves of losses, errors and radius by epoch, a line for each recipe, and one
    legend for all."""
    made, axes = figure(3, 9.6, 5.0, rows=2)
    for ax, metric in zip(axes, PANELS, strict=False):
        curves(runs, metric, ax=ax)
        for text in [text for text in ax.texts if text.get_gid() == END]:
            text.remove()
        ax.set_title(TITLES[metric], loc="left")
        ax.set_xlabel("epoch")
        ax.set_ylim(bottom=0)
    axes[-1].axis("off")
    axes[-1].legend(
        *axes[0].get_legend_handles_labels(), loc="center", frameon=False, labelcolor=INK
    )
    return made
