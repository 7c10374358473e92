"""How many of the violations that are known bl.attack finds, each confirmed by onnxruntime.

python -m benchmarks.attacks                        all sets, one thread, 8 s an instance
python -m benchmarks.attacks --sets acasxu_2023     some sets
python -m benchmarks.attacks --output FILE.json     where the figures go

The instances are those of BOUNDLAB_SHARED/vnncomp whose verdict is sat.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import time
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import boundlab as bl
from benchmarks.shared import SHARED
from boundlab.onnx import OnnxModel
from boundlab.onnx.checking import run, session
from boundlab.storage.files import write_atomically

FOLDER = SHARED / "vnncomp"


@dataclass
class Tally:
    """One set: how many violations there are, how many were found, and how long that took."""

    name: str
    known: int = 0
    seconds: list[float] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    not_confirmed: list[str] = field(default_factory=list)


@lru_cache(4)
def network(path: Path) -> OnnxModel:
    return bl.load_onnx(path)


def confirmed(path: Path, prop: bl.Property, found: bl.Attack) -> bool:
    """Whether onnxruntime's outputs at the input are a violation too."""
    x = found.inputs
    y = run(session(path), [x[0].float()], network(path).inputs)[0].reshape(1, -1)
    return bool(prop.violated(x, y).all())


def tally(name: str, seconds: float) -> Tally:
    found = Tally(name)
    folder = FOLDER / name
    with (folder / "verdicts.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["verdict"] == "sat"]
    found.known = len(rows)
    for row in rows:
        path, title = folder / f"{row['onnx']}.gz", f"{row['onnx']} {row['vnnlib']}"
        prop = bl.load_vnnlib(folder / f"{row['vnnlib']}.gz")
        start = time.perf_counter()
        answer = bl.attack(network(path), prop, timeout=seconds)
        took = time.perf_counter() - start
        if not bool(answer.violated.all()):
            found.missed.append(title)
        elif confirmed(path, prop, answer):
            found.seconds.append(took)
        else:
            found.not_confirmed.append(title)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sets = sorted(path.parent.name for path in FOLDER.glob("*/cex"))
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/attacks.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    tallies = []
    table = Table(title="Known violations found")
    for column in ("set", "known", "found", "median s", "largest s", "missed", "not confirmed"):
        table.add_column(column)
    for name in options.sets:
        one = tally(name, options.seconds)
        tallies.append(one)
        times = one.seconds or [float("nan")]
        table.add_row(
            name,
            str(one.known),
            str(len(one.seconds)),
            f"{statistics.median(times):.3f}",
            f"{max(times):.2f}",
            ", ".join(one.missed),
            ", ".join(one.not_confirmed),
        )
        print(f"{name}: {len(one.seconds)} of {one.known}", flush=True)
    Console(width=160).print(table)
    content = {"seconds": options.seconds, "sets": [asdict(one) for one in tallies]}
    write_atomically(options.output, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
