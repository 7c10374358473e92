"""Results as long tables: CSV, and Parquet if pyarrow is there."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from boundlab.commands.certificates import AttackRun, Certification, Run
from boundlab.storage.files import write_atomically

Table = Mapping[str, Sequence[int | float | str | None]]
"""Columns by name, all of one length; None where there is nothing to say."""
COLUMNS = ("image", "label", "prediction", "method", "radius", "class", "margin", "verdict")


def write_table(path: Path, table: Table) -> None:
    """Write a table as ``path``.csv, and as ``path``.parquet if pyarrow can be imported. Numbers
    are written so that reading them gives them back exactly."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    write_atomically(path.with_name(path.name + ".csv"), text.getvalue())
    if importlib.util.find_spec("pyarrow") is not None:
        write_atomically(path.with_name(path.name + ".parquet"), _parquet(table))


def _parquet(table: Table) -> bytes:
    import pyarrow
    from pyarrow import parquet

    content = io.BytesIO()
    parquet.write_table(pyarrow.table({name: list(held) for name, held in table.items()}), content)
    return content.getvalue()


def verdict_table(found: Certification) -> Table:
    """A row for every image, method, radius and other class, with the lower bound of the margin
    over it; and for every attack on an image a row of the method "attack", with the class that came
    closest and the margin that was found."""
    rows = [row for run in found.runs for row in _bound_rows(found, run)]
    rows += [row for run in found.attacks for row in _attack_rows(found, run)]
    return {name: [row[k] for row in rows] for k, name in enumerate(COLUMNS)}


Row = tuple[int, int, int, str, float, int, float, str]
"""What stands in the columns."""


def _bound_rows(found: Certification, run: Run) -> Iterable[Row]:
    verdicts = found.verdicts(run.radius, run.method)
    labels, predictions = found.labels.tolist(), found.predictions.tolist()
    for image, margins in enumerate(run.margins.tolist()):
        label, verdict = labels[image], verdicts[image].value
        others = [k for k in range(found.task.classes) if k != label]
        for k, margin in zip(others, margins, strict=True):
            yield (
                image, label, predictions[image], run.method, run.radius, k, margin, verdict,
            )  # fmt: skip


def _attack_rows(found: Certification, run: AttackRun) -> Iterable[Row]:
    verdicts = found.verdicts(run.radius)
    held = zip(run.images.tolist(), run.classes.tolist(), run.margins.tolist(), strict=True)
    for image, k, margin in held:
        label, prediction = int(found.labels[image]), int(found.predictions[image])
        verdict = verdicts[image].value
        yield (image, label, prediction, "attack", run.radius, k, margin, verdict)
