"""What the built-in recipes were seen to reach: figures of stored runs, which
``python -m benchmarks.reached`` collects. Of most large recipes there are none."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "reached.csv"
COLUMNS = (
    "recipe", "seeds", "clean_error", "verified_error", "loss_rise", "minutes_from", "minutes_to",
)  # fmt: skip


@dataclass(frozen=True)
class Reached:
    """seeds: how many runs there were; errors are means of them, over all test samples.
    verified_error: the share that is not verified. loss_rise: what the training loss is certified
    not to rise beyond when all weights move by 1 % of their norms. minutes: of training, on one
    thread of a machine that others used too, from the fastest run to the slowest."""

    seeds: int
    clean_error: float
    verified_error: float | None
    loss_rise: float | None
    minutes: tuple[int, int] | None


def reached() -> dict[str, Reached]:
    """By the names of recipes."""
    with FILE.open(newline="") as file:
        return {row["recipe"]: _read(row) for row in csv.DictReader(file)}


def _read(row: dict[str, str]) -> Reached:
    minutes = None
    if row["minutes_from"]:
        minutes = int(row["minutes_from"]), int(row["minutes_to"])
    return Reached(
        int(row["seeds"]),
        float(row["clean_error"]),
        _number(row["verified_error"]),
        _number(row["loss_rise"]),
        minutes,
    )


def _number(text: str) -> float | None:
    return float(text) if text else None
