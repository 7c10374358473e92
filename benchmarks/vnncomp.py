"""Instances of the verification competition (VNN-COMP) whose answers are known.

    python -m benchmarks.vnncomp [--list quick] [--sets NAME ...] [--timeout S] [--jobs N] [--again]

The files lie in BOUNDLAB_SHARED/vnncomp; --list names one of its tables of verdicts (quick.csv or
verdicts.csv). Each instance is a fresh process, whose start counts. What is done is kept in
benchmarks/results/vnncomp-LIST and not done again, unless --again is given. An answer is right or
wrong where the table has sat or unsat, late if it is right but came after the time; other instances
are not scored. Ends with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.shared import SHARED
from benchmarks.timing import RESULTS
from boundlab.commands import benchmark
from boundlab.commands.benchmark import Plan, verify_instances
from boundlab.commands.competition import ERROR, SAT, UNSAT, Instance
from boundlab.commands.outcomes import Outcome, OutcomeFile
from boundlab.errors import BoundlabError

FOLDER = SHARED / "vnncomp"
JUDGEMENTS = ("right", "late", "wrong", "unknown", "error", "not scored")


@dataclass(frozen=True)
class Known:
    """An instance and the answer that others gave: sat, unsat, or anything else."""

    instance: Instance
    verdict: str

    def judge(self, outcome: Outcome) -> str:
        """What an outcome is worth."""
        if outcome.status == ERROR:
            return "error"
        if outcome.status not in (SAT, UNSAT):
            return "unknown"
        if self.verdict not in (SAT, UNSAT):
            return "not scored"
        if outcome.status != self.verdict:
            return "wrong"
        return "right" if outcome.seconds <= self.instance.timeout else "late"


def read_known(path: Path, sets: Iterable[str], timeout: float | None) -> list[Known]:
    """The instances of some sets, of all if none is named. timeout: instead of the table's own."""
    wanted = set(sets)
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if not wanted or row["benchmark"] in wanted]
    missing = wanted - {row["benchmark"] for row in rows}
    if missing or not rows:
        raise SystemExit(f"{path} has no instances of {', '.join(sorted(missing)) or 'any set'}")
    return [
        Known(
            Instance(
                f"{row['benchmark']}/{row['onnx']}",
                f"{row['benchmark']}/{row['vnnlib']}",
                timeout or float(row["timeout"]),
            ),
            row["verdict"],
        )
        for row in rows
    ]


def judged(known: Iterable[Known], held: OutcomeFile) -> dict[str, list[tuple[str, Outcome]]]:
    """What the outcomes so far are worth, by set."""
    found: dict[str, list[tuple[str, Outcome]]] = {}
    for one in known:
        outcome = held.get(one.instance)
        if outcome is not None:
            found.setdefault(one.instance.set, []).append((one.judge(outcome), outcome))
    return found


def table(scores: dict[str, list[tuple[str, Outcome]]]) -> Table:
    shown = Table()
    shown.add_column("set", no_wrap=True)
    for column in (*JUDGEMENTS, "median s", "total s"):
        shown.add_column(column, justify="right")
    together = [pair for pairs in scores.values() for pair in pairs]
    for name, pairs in (*scores.items(), ("all", together)):
        counts = [sum(word == judgement for word, _ in pairs) for judgement in JUDGEMENTS]
        seconds = [outcome.seconds for _, outcome in pairs]
        times = (f"{statistics.median(seconds):.2f}", f"{sum(seconds):.1f}")
        shown.add_row(name, *map(str, counts), *times)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", default="quick")
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--memory")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    path = FOLDER / f"{options.list}.csv"
    if not path.exists():
        raise SystemExit(f"{path} is not there: set BOUNDLAB_SHARED to what holds vnncomp/")
    known = read_known(path, options.sets, options.timeout)
    output = options.output or RESULTS / f"vnncomp-{options.list}"
    results = output / benchmark.RESULTS
    if options.again:
        results.unlink(missing_ok=True)
    instances = [one.instance for one in known]
    plan = Plan(instances, FOLDER, output, options.jobs, options.threads, options.memory)
    held = OutcomeFile.open(results, resume=True)
    console = Console()
    try:
        verify_instances(plan, held, console)
    except BoundlabError as error:
        raise SystemExit(f"{error}") from None
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on from here")
    scores = judged(known, held)
    console.print(table(scores))
    wrong = [one for one in known if _is_wrong(one, held)]
    for one in wrong:
        console.print(f"wrong: {one.instance.onnx} {one.instance.vnnlib} is {one.verdict}")
    return int(bool(wrong))


def _is_wrong(known: Known, held: OutcomeFile) -> bool:
    outcome = held.get(known.instance)
    return outcome is not None and known.judge(outcome) == "wrong"


if __name__ == "__main__":
    sys.exit(main())
