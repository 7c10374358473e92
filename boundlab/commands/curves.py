"""``boundlab curves``: training runs side by side, as a table and as a picture."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from boundlab.commands.consoles import widened
from boundlab.commands.speaking import out, say
from boundlab.errors import ArgumentError
from boundlab.training.groups import by_recipe
from boundlab.training.metrics import ERRORS, METRICS, RECIPE, read_rows
from boundlab.training.recipe import Recipe

TRAINING = "Of training, the last epoch; not proved: by the bounds of the loss."
TESTED = "Tested: by 'boundlab evaluate', on test samples; verified by any of its methods."
Row = dict[str, float]


def curves(options: argparse.Namespace) -> None:
    """Compare training runs."""
    groups = by_recipe(options.runs)
    rows = {run: read_rows(run) for runs in groups.values() for run in runs}
    empty = [str(run) for run, found in rows.items() if not found]
    if empty:
        raise ArgumentError(f"there are no epochs yet in {METRICS} of {', '.join(empty)}")
    console = widened(out(options))
    console.print(_training(groups, rows))
    console.print(TRAINING, highlight=False)
    tested = _tested(groups)
    if tested is not None:
        console.print()
        console.print(tested)
        console.print(TESTED, highlight=False)
    if options.plot is not None:
        _plot(options.runs, options.plot)
        say(console, f"Curves: {options.plot}")


def _training(groups: dict[str, list[Path]], rows: dict[Path, list[Row]]) -> Table:
    """A line for each recipe: means of its seeds in the last epoch that all have reached."""
    table = _table("epochs", "eps", "clean loss", "robust loss", "clean error", "not proved", "min")
    for label, runs in groups.items():
        found = [rows[run] for run in runs]
        reached = min(map(len, found))
        last = [row[reached - 1] for row in found]
        minutes = [sum(row["seconds"] for row in run) / 60 for run in found]
        table.add_row(
            *_named(label, runs),
            f"{reached} of {Recipe.load(runs[0] / RECIPE).epochs}",
            f"{last[0]['eps']:.4g}",
            spread([row["clean_loss"] for row in last], "{:.3f}".format),
            spread([row["robust_loss"] for row in last], "{:.3f}".format),
            spread([row["clean_error"] for row in last], _share),
            spread([row["not_proved"] for row in last], _share),
            f"{statistics.mean(minutes):.1f}",
        )
    return table


def _tested(groups: dict[str, list[Path]]) -> Table | None:
    """A line for each recipe whose runs were evaluated; None if none was. Runs that were evaluated
    at different radii are not mixed."""
    table = _table("samples", "eps", "clean error", "attacked", "verified")
    for label, runs in groups.items():
        by_radius: dict[float, list[dict[str, Any]]] = {}
        for run in runs:
            if (run / ERRORS).is_file():
                found = _errors(run / ERRORS)
                by_radius.setdefault(found["eps"], []).append(found)
        for eps, tests in by_radius.items():
            table.add_row(
                label,
                str(len(tests)),
                ", ".join(sorted({str(test["count"]) for test in tests})),
                f"{eps:.4g}",
                spread([test["clean"] for test in tests], _share),
                spread([test["attacked"] for test in tests], _share),
                spread([max(test["verified"].values(), default=0.0) for test in tests], _share),
            )
    if not table.row_count:
        return None
    return table


def _errors(path: Path) -> dict[str, Any]:
    """What ``boundlab evaluate`` has written."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        numbers = [found["eps"], found["count"], found["clean"], found["attacked"]]
        numbers += found["verified"].values()
        if "format" not in found or not all(isinstance(one, int | float) for one in numbers):
            raise ValueError("it is of an older version")
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArgumentError(
            f"{path} cannot be read as the errors of a run: {error}. Run 'boundlab evaluate' again"
        ) from None


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    for column in ("seeds", *columns):
        table.add_column(column, justify="right")
    return table


def _named(label: str, runs: Sequence[Path]) -> tuple[str, str]:
    return label, str(len(runs))


def spread(values: Sequence[float], shown: Callable[[float], str]) -> str:
    """The mean of some runs, and how far they lie apart: their standard deviation; "-" for what was
    not counted."""
    if any(math.isnan(value) for value in values):
        return "-"
    middle = shown(statistics.mean(values))
    if len(values) == 1:
        return middle
    return f"{middle} ± {shown(statistics.stdev(values))}"


def _share(value: float) -> str:
    return f"{value:.2%}"


def _plot(runs: Sequence[Path], path: Path) -> None:
    """Draw all panels into a file."""
    from boundlab.plot.panels import panels  # needs the extra plot, which not everybody has
    from boundlab.plot.style import check_format, save

    check_format(path)
    save(panels(runs), path)
