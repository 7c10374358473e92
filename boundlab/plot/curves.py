"""Training curves: metrics of runs, the seeds of a recipe as a band."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from boundlab.errors import ArgumentError, did_you_mean
from boundlab.plot.reading import Array
from boundlab.plot.style import band, given_or_new, label_ends, per_cent
from boundlab.training.groups import by_recipe
from boundlab.training.metrics import COLUMNS, METRICS

TITLES = {
    "eps": "ε",
    "beta": "β",
    "kappa": "κ",
    "lr": "learning rate",
    "loss": "loss",
    "clean_loss": "clean loss",
    "robust_loss": "bound of the loss",
    "clean_error": "training error",
    "not_proved": "not verified in training",
    "seconds": "seconds",
}
SHARES = ("clean_error", "not_proved")


def curves(
    runs: Path | str | Sequence[Path | str],
    metric: str = "not_proved",
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw a metric of training by epoch.

    runs: folders that ``boundlab train`` has written. Runs whose recipes differ in nothing but the
    seed are one line, their mean, in a band from the least to the greatest; epochs that some of
    them have not reached are drawn run by run. metric: a column of ``metrics.csv``: "eps", "beta",
    "kappa", "lr", "loss", "clean_loss", "robust_loss", "clean_error", "not_proved" or "seconds".
    """
    if metric not in TITLES:
        raise ArgumentError(
            f"metric must be one of {', '.join(TITLES)}, not {metric!r}."
            f"{did_you_mean(metric, TITLES)}"
        )
    if isinstance(runs, str | Path):
        runs = [runs]
    groups = by_recipe([Path(run) for run in runs])
    fresh = ax is None
    ax = given_or_new(ax)
    for label, folders in groups.items():
        _group(ax, _called(label, folders), [column_of(folder, metric) for folder in folders])
    if fresh:
        ax.set(xlabel="epoch", ylabel=TITLES[metric])
    if metric in SHARES:
        per_cent(ax.yaxis)
    label_ends(ax)
    return ax


def _called(label: str, folders: Sequence[Path]) -> str:
    """What the line of some runs is called."""
    if len(folders) > 1:
        return f"{label}, {len(folders)} seeds"
    return label


def column_of(run: Path, metric: str) -> Array:
    """A metric by epoch: (epochs,)."""
    path = run / METRICS
    try:
        lines = list(csv.DictReader(path.read_text().splitlines()))
        found = np.array([float(line[metric]) for line in lines])
    except (OSError, KeyError, TypeError, ValueError):
        raise ArgumentError(
            f"cannot read {metric} of {path}: it should be a table with the columns "
            f"{', '.join(COLUMNS)}"
        ) from None
    if not len(found):
        raise ArgumentError(f"{path} has no epochs yet")
    return found


def _group(ax: Axes, label: str, columns: Sequence[Array]) -> None:
    """The mean and the band of what all runs have reached, then the rest of each run."""
    common = min(map(len, columns))
    line = band(ax, range(1, common + 1), [column[:common] for column in columns], label)
    for column in columns:
        if len(column) > common:
            ax.plot(
                range(common, len(column) + 1), column[common - 1 :],
                color=line.get_color(), linewidth=0.7, linestyle="-",
            )  # fmt: skip
