"""The file of figures that a training run writes, a line an epoch."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path

from boundlab.storage.files import write_atomically

METRICS, RECIPE, ERRORS = "metrics.csv", "recipe.toml", "errors.json"
"""Files of a run, beside its checkpoint; the last one is of ``boundlab evaluate``."""
COLUMNS = (
    "epoch",
    "eps",
    "beta",
    "kappa",
    "lr",
    "loss",
    "clean_loss",
    "robust_loss",
    "clean_error",
    "not_proved",
    "seconds",
)


def write_row(folder: Path, row: Mapping[str, float]) -> None:
    """Add the line of an epoch; lines of that epoch and later ones, which a resumed run does again,
    are dropped."""
    path = folder / METRICS
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(line for line in _lines(path) if int(line["epoch"]) < int(row["epoch"]))
    writer.writerow(row)
    write_atomically(path, text.getvalue())


def read_rows(folder: Path) -> list[dict[str, float]]:
    """The lines of a run, in order of epochs; what is no number is NaN."""
    found = [
        {key: _number(value) for key, value in line.items()} for line in _lines(folder / METRICS)
    ]
    return sorted(found, key=lambda row: row["epoch"])


def _lines(path: Path) -> list[dict[str, str]]:
    """The lines of a file; those that cannot be read are lost."""
    if not path.is_file():
        return []
    found = csv.DictReader(path.read_text(errors="replace").splitlines())
    return [line for line in found if set(line) == set(COLUMNS) and _counts(line["epoch"])]


def _counts(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdigit()


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
