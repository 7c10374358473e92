"""Branch and bound over inputs: what clipping saves on ACAS Xu, and how its cost grows.

    python -m benchmarks.splitting [--seconds 20] [--skip-acasxu]

ACAS Xu: every instance of the competition that holds, with and without clipping, each for at most
--seconds after its bounds; found through BOUNDLAB_SHARED. Growth: random ReLU networks of several
widths, depths and numbers of inputs, with a property that holds by a tenth of what alpha-crown
lacks at the root, decided by bl.verify; the median of five networks. One thread. Writes
results/splitting.json.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import boundlab as bl
from benchmarks.shared import SHARED
from benchmarks.timing import save
from boundlab.verify.bound import Bounder
from boundlab.verify.inputs import InputSplitting
from boundlab.verify.query import Query, nothing

FOLDER = SHARED / "vnncomp"
SET = "acasxu_2023"
SEEDS = range(5)
SLACK = 0.1
"""By how much properties of random networks hold, as a share of what bounds lack at the root."""
GROWTH = {
    "width": [{"width": n, "depth": 3, "inputs": 4} for n in (8, 16, 32, 64, 128)],
    "depth": [{"width": 32, "depth": n, "inputs": 4} for n in (1, 2, 3, 4, 5, 6)],
    "inputs": [{"width": 32, "depth": 3, "inputs": n} for n in (1, 2, 3, 4, 5, 6)],
}


@dataclass(frozen=True)
class Run:
    """One search: whether it ended, its domains and its seconds."""

    proved: bool
    domains: int
    seconds: float


def acasxu_instances() -> list[tuple[str, str]]:
    path = FOLDER / "verdicts.csv"
    if not path.exists():
        raise SystemExit(f"{path} is not there: set BOUNDLAB_SHARED, or give --skip-acasxu")
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == SET]
    return [(row["onnx"], row["vnnlib"]) for row in rows if row["verdict"] == "unsat"]


def search(query: Query, clips: bool, seconds: float) -> Run:
    """Input splitting alone, with nothing tried as a counterexample."""
    start = time.monotonic()
    bounder = Bounder(query.net, query.rows)
    boxes = query.first_boxes()
    found = InputSplitting(bounder, boxes, nothing, start + seconds, clips=clips)
    found.begin()
    found.run()
    return Run(found.is_proved, found.counts.opened, time.monotonic() - start)


def clipping(seconds: float, console: Console) -> list[dict[str, Any]]:
    """Every instance with and without clipping, one after the other."""
    found = []
    for onnx, vnnlib in acasxu_instances():
        model = bl.load_onnx(FOLDER / SET / f"{onnx}.gz")
        query = Query.of(model, bl.load_vnnlib(FOLDER / SET / f"{vnnlib}.gz"))
        with_clipping, without = (search(query, clips, seconds) for clips in (True, False))
        console.print(f"{onnx} {vnnlib}: {with_clipping} {without}")
        row = {"onnx": onnx, "vnnlib": vnnlib}
        found.append({**row, "clipped": asdict(with_clipping), "whole": asdict(without)})
    return found


def random_network(width: int, depth: int, inputs: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1)).double()


@torch.no_grad()
def threshold(model: nn.Sequential, box: bl.Box) -> float:
    """Below the least value that samples and an attack see, by a share of what bounds lack."""
    net = bl.capture(model, box.centre)
    lower = float(net.bounds(box, method="alpha-crown", sides="lower").lower)
    shape = (20000, box.lower.shape[1])
    x = box.lower + (box.upper - box.lower) * torch.rand(shape, dtype=torch.float64)
    seen = float(model(x).min())
    prop = bl.Property(box, lambda y: y[:, 0] > seen)
    attacked = bl.attack(model, prop, timeout=0.5)
    seen = min(seen, float(attacked.outputs.min()))
    return seen - SLACK * (seen - lower)


def decided(width: int, depth: int, inputs: int, seed: int, seconds: float) -> Run:
    """bl.verify on a random network."""
    model = random_network(width, depth, inputs, seed)
    ones = torch.ones(1, inputs, dtype=torch.float64)
    box = bl.Box(-ones, ones)
    least = threshold(model, box)
    prop = bl.Property(box, lambda y: y[:, 0] > least)
    verdict = bl.verify(model, prop, timeout=seconds)
    return Run(verdict.status == "holds", verdict.domains, verdict.seconds)


def growth(seconds: float, console: Console) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for axis, settings in GROWTH.items():
        for setting in settings:
            runs = [decided(**setting, seed=seed, seconds=seconds) for seed in SEEDS]
            row = {
                "decided": sum(run.proved for run in runs),
                "domains": statistics.median(run.domains for run in runs),
                "seconds": statistics.median(run.seconds for run in runs),
            }
            found[f"{axis}/{setting[axis]}"] = row
            console.print(axis, setting[axis], row)
    return found


def table(rows: list[dict[str, Any]]) -> Table:
    """With and without clipping, over the instances that both decide."""
    shown = Table("clipping", "decided", "domains", "seconds", "domains a second")
    both = [row for row in rows if row["clipped"]["proved"] and row["whole"]["proved"]]
    for name, key in (("yes", "clipped"), ("no", "whole")):
        domains = sum(row[key]["domains"] for row in both)
        seconds = sum(row[key]["seconds"] for row in both)
        decided = f"{sum(row[key]['proved'] for row in rows)} of {len(rows)}"
        rate = f"{domains / max(seconds, 1e-9):.0f}"
        shown.add_row(name, decided, str(domains), f"{seconds:.1f}", rate)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--skip-acasxu", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    found: dict[str, Any] = {"seconds": options.seconds}
    found["growth"] = growth(options.seconds, console)
    save("splitting", found)
    if not options.skip_acasxu:
        found["acasxu"] = clipping(options.seconds, console)
        console.print(table(found["acasxu"]))
        save("splitting", found)


if __name__ == "__main__":
    main()
