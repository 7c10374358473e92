"""Collects what the built-in recipes were seen to reach, from stored results of the other
benchmarks, into the file that ``boundlab recipes`` shows.

    python -m benchmarks.reached
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.timing import load
from boundlab.training.reached import COLUMNS, FILE
from boundlab.training.recipes import FLAT_BATCHES, FLAT_SETS, FLAT_SHARES

BUDGET = "6"
"""Replaced words that the recipes for sentences are trained for."""
Row = dict[str, Any]


def rows() -> list[Row]:
    """A row for each recipe that was measured."""
    return [*_images(load("certified")), *_flat(load("flatness")), *_sentences(load("words"))]


def _images(known: dict[str, Row]) -> Iterator[Row]:
    by_recipe: dict[str, list[Row]] = {}
    for run in known.values():
        by_recipe.setdefault(run["recipe"], []).append(run)
    for name, runs in sorted(by_recipe.items()):
        minutes = [run["minutes"] for run in runs]
        verified = [min(run["verified_error"].values()) for run in runs]
        yield {
            "recipe": name,
            "seeds": len(runs),
            "clean_error": _mean([run["clean"] for run in runs]),
            "verified_error": _mean(verified),
            "minutes_from": f"{min(minutes):.0f}",
            "minutes_to": f"{max(minutes):.0f}",
        }


def _flat(known: dict[str, Row]) -> Iterator[Row]:
    for data in FLAT_SETS:
        for share in FLAT_SHARES:
            for part in FLAT_BATCHES:
                found = known[f"{data}, {share:g}, {part:g}, flat"]
                row = {
                    "seeds": 1,
                    "clean_error": _mean([found["test_error"]]),
                    "loss_rise": f"{min(found['flatness'].values()):.3g}",
                }
                yield {"recipe": f"flat-{data}-{share:g}-{part:g}", **row}
                if (share, part) == (0.1, 0.1):
                    yield {"recipe": f"flat-{data}", **row}


def _sentences(known: dict[str, Row]) -> Iterator[Row]:
    for model in ("transformer", "lstm"):
        runs = [run for name, run in known["runs"].items() if name.startswith(f"{model}, lirpa-6")]
        verified = [run["all"]["verified"]["crown-ibp"][BUDGET] for run in runs]
        yield {
            "recipe": f"sst-{model}",
            "seeds": len(runs),
            "clean_error": _mean([1 - run["all"]["clean"] for run in runs]),
            "verified_error": _mean([1 - share for share in verified]),
        }


def _mean(shares: list[float]) -> str:
    return f"{statistics.mean(shares):.4f}"


def text() -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows())
    return file.getvalue()


if __name__ == "__main__":
    FILE.write_text(text())
    print(f"wrote {FILE}")
