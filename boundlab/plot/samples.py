"""How many samples are verified: margins, and shares by radius."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.typing import ColorType

from boundlab.errors import ArgumentError, did_you_mean
from boundlab.plot.reading import Array, array
from boundlab.plot.style import (
    BROKEN,
    FILL,
    INK,
    PROVED,
    given_or_new,
    given_or_next,
    legend_beside,
    per_cent,
)
from boundlab.radius import Radii

KINDS = ("histogram", "sorted")


def margins(
    values: object,
    kind: str = "histogram",
    *,
    bins: int = 30,
    label: str | None = None,
    colour: ColorType | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw lower bounds of margins, and the share of samples that they verify: those whose least
    margin is above 0.

    values: ``net.margins(region, labels)``, (samples, others) or (samples,). kind: "histogram", of
    the least margin of each sample; or "sorted", all least margins in falling order, where several
    methods can be drawn into the same Axes. Margins that are -inf count as not verified and are not
    drawn.
    """
    if kind not in KINDS:
        raise ArgumentError(
            f"kind must be one of {', '.join(KINDS)}, not {kind!r}.{did_you_mean(kind, KINDS)}"
        )
    least = _least(values)
    share = float((least > 0).mean())
    told = f"{100 * share:.3g} % of {len(least)} verified"
    if label is not None:
        told = f"{label}: {told}"
    fresh = ax is None
    ax = given_or_new(ax)
    if kind == "sorted":
        _sorted(ax, least, told, colour)
    else:
        _histogram(ax, least[np.isfinite(least)], bins)
        ax.set_title(told, loc="left")
    if fresh:
        sorted_labels = {"xlabel": "samples", "ylabel": "least margin (lower bound)"}
        histogram_labels = {"xlabel": "least margin (lower bound)", "ylabel": "samples"}
        ax.set(**{"sorted": sorted_labels, "histogram": histogram_labels}[kind])
    return ax


def _least(values: object) -> Array:
    """The least margin of each sample."""
    numbers = array(values, "margins")
    if numbers.ndim not in (1, 2) or not numbers.size:
        raise ArgumentError(
            f"margins must have the shape (samples, others) or (samples,), got {numbers.shape}"
        )
    return numbers.reshape(len(numbers), -1).min(1)


def _histogram(ax: Axes, least: Array, bins: int) -> None:
    """Bars on both sides of 0, none across it; a margin of exactly 0 is on the left."""
    if not len(least):
        return
    low, high = min(0.0, float(least.min())), max(0.0, float(least.max()))
    width = (high - low or 1.0) / bins
    below, above = int(np.ceil(-low / width)), int(np.ceil(high / width))
    # the bin of a margin m is (k width, (k + 1) width]
    places = np.clip(np.ceil(least / width).astype(int) - 1, -below, max(above - 1, 0))
    places = np.where(least > 0, np.maximum(places, 0), np.minimum(places, -1))
    for chosen, colour in ((places >= 0, PROVED), (places < 0, BROKEN)):
        where, counts = np.unique(places[chosen], return_counts=True)
        ax.bar(where * width, counts, 0.9 * width, align="edge", color=colour)
    ax.axvline(0.0, color=INK, linewidth=0.8)


def _sorted(ax: Axes, least: Array, told: str, colour: ColorType | None) -> None:
    falling = np.sort(least)[::-1]
    drawn = np.where(np.isfinite(falling), falling, np.nan)
    shares = (np.arange(len(falling)) + 0.5) / len(falling)
    ax.plot(shares, drawn, color=given_or_next(ax, colour), linestyle="-", label=told)
    ax.axhline(0.0, color=INK, linewidth=0.8)
    ax.set_xlim(0, 1)
    per_cent(ax.xaxis)
    legend_beside(ax)


def radii(
    found: Radii,
    *,
    label: str | None = None,
    colour: ColorType | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw which share of the samples is classified correctly in all of a ball, by its radius.

    found: ``bl.certified_radius(net, x, labels)``. The lower line is the share that is proved, the
    upper one the share that is not broken; the true one lies in the area between.
    """
    proved, broken = array(found.proved, "radii"), array(found.broken, "radii")
    if not len(proved):
        raise ArgumentError("there are no samples")
    right = broken > 0
    everywhere = np.concatenate([np.zeros(1), proved, broken[np.isfinite(broken)]])
    grid = np.unique(everywhere)
    if len(grid) == 1:
        grid = np.array([0.0, 1.0])
    # between two neighbours of the grid both shares are constant
    sure = np.array([(right & (proved >= end)).mean() for end in grid[1:]])
    unbroken = np.array([(broken > start).mean() for start in grid[:-1]])
    fresh = ax is None
    ax = given_or_new(ax)
    colour = given_or_next(ax, colour)
    ends = np.append(sure, sure[-1]), np.append(unbroken, unbroken[-1])
    ax.fill_between(grid, *ends, step="post", color=colour, alpha=FILL, linewidth=0)
    name = "" if label is None else f"{label}: "
    for side, dashes, word in ((ends[0], "-", "proved"), (ends[1], (0, (1, 1)), "not broken")):
        ax.plot(
            grid, side, drawstyle="steps-post", color=colour, linestyle=dashes,
            label=f"{name}{word}",
        )  # fmt: skip
    if fresh:
        ax.set(xlabel="radius", ylabel="samples", ylim=(0, 1.02))
        per_cent(ax.yaxis)
    legend_beside(ax)
    return ax
