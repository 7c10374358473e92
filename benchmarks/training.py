"""Time and peak memory of a training step: natural, IBP, LiRPA with and without loss fusion, as
multiples of natural.

    python -m benchmarks.training [--threads N] [--rounds N] [--only NAME]

A step is forward and backward; what the optimiser takes for its update, clipping included, is
measured beside it. Robust steps have the channels last in memory, as the recipes of these networks
do; natural ones are measured both ways, and multiples are of the plain one. Robust steps contain
the clean pass, whose batch-norm statistics they share and differentiate through; LiRPA is mixed
with IBP (beta 0.5). Times are interleaved, best of several rounds, in one process a network; memory
is the growth of a process of its own. Steps that would not fit are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from benchmarks.memory import Watch
from benchmarks.timing import best_of, gigaflops, kernel_seconds, load, save
from boundlab.losses.clean_pass import CleanPass
from boundlab.models import build

STEPS: dict[str, dict[str, Any] | None] = {
    "natural": None,
    "natural, channels last": None,
    "ibp": {"beta": 0.0},
    "fused": {"beta": 0.5},
    "unfused": {"beta": 0.5, "fused": False},
}
NAMES = {
    "cnn7-bn": "CNN-7+BN",
    "resnext": "ResNeXt",
    "wide-resnet": "WideResNet",
    "densenet": "DenseNet",
}


def peer(name: str) -> dict[str, float]:
    """The multiples of auto_LiRPA 0.7.1 for a case, where they are known."""
    model, _, rest = name.partition(", ")
    theirs = json.loads((Path(__file__).parent / "peer.json").read_text())["training"]
    for known, figures in theirs.items():
        if known.startswith(f"{NAMES[model]}, {rest}, "):
            return {
                ours: figures[key]
                for ours, key in (("ibp", "ibp"), ("fused", "lf"), ("unfused", "nolf"))
                if key in figures
            }
    return {}


@dataclass(frozen=True)
class Case:
    model: str
    size: int
    classes: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.model}, {self.size}x{self.size}, {self.classes} classes"

    def runs(self, step: str) -> bool:
        """Without fusion every class has a row of its own: with 200 of them the coefficients do not
        fit."""
        return step != "unfused" or self.classes <= 10

    def network(self) -> nn.Module:
        torch.manual_seed(0)
        return build(self.model, 3, self.size, self.classes, (0.5,) * 3, (0.25,) * 3).train()

    def update(self) -> Callable[[], None]:
        """What follows every step in training, whatever the loss."""
        model = self.network()
        optimiser = torch.optim.Adam(model.parameters(), lr=5e-4)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)

        def update() -> None:
            nn.utils.clip_grad_norm_(model.parameters(), 8.0)
            optimiser.step()

        return update

    def steps(self) -> dict[str, Callable[[], None]]:
        model = self.network()
        x, y = (
            torch.rand(self.batch, 3, self.size, self.size),
            torch.randint(0, self.classes, (self.batch,)),
        )
        last = x.contiguous(memory_format=torch.channels_last)
        net = bl.capture(model, x[:2])

        def natural(x: Tensor) -> None:
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()

        def robust(**how: Any) -> None:
            model.zero_grad()
            with CleanPass(net) as seen:
                model(last)
            region = bl.Linf(last, 1 / 255, lower=0.0, upper=1.0)
            bl.robust_cross_entropy(net, region, y, clean=seen.values, **how).mean().backward()

        given = {"natural": x, "natural, channels last": last}
        tasks: dict[str, Callable[[], None]] = {}
        for name, how in STEPS.items():
            if self.runs(name):
                tasks[name] = (
                    partial(natural, given[name]) if how is None else partial(robust, **how)
                )
        return tasks


CASES = [
    Case(name, 32, 10, batch)
    for name, batch in (("cnn7-bn", 16), ("densenet", 8), ("wide-resnet", 8), ("resnext", 16))
]
CASES += [
    Case(name, 56, 200, batch)
    for name, batch in (("cnn7-bn", 8), ("densenet", 4), ("wide-resnet", 2), ("resnext", 8))
]
CASES += [Case("cnn7-bn", 32, 1000, 16)]


def memory_of(case: Case, step: str, threads: int) -> float:
    """MiB that a process grows by in one step, after a smaller one."""
    call = [
        sys.executable,
        "-m",
        "benchmarks.training",
        "--threads",
        str(threads),
        "--only",
        case.name,
        "--memory",
        step,
    ]
    return float(
        json.loads(
            subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        )
    )


def grown(case: Case, step: str) -> float:
    task = case.steps()[step]
    with Watch() as watch:
        task()
    return watch.grown / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--keep-times",
        action="store_true",
        help=("measure the memory again, and keep the times that are recorded"),
    )
    parser.add_argument(
        "--memory", choices=list(STEPS), help="print the memory of one step in MiB and end"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chosen = [case for case in CASES if options.only in case.name]
    if options.memory:
        print(json.dumps(grown(chosen[0], options.memory)))
        return
    rows: dict[str, Any] = (load("training") or {"rows": {}})["rows"]
    for case in chosen:
        known = rows.get(case.name, {}) if options.keep_times else {}
        steps = case.steps()
        seconds = known.get("seconds") or best_of(
            {**steps, "update": case.update()}, options.rounds, seconds=60
        )
        kernels = known.get("kernels") or {
            step: kernel_seconds(task, 3) for step, task in steps.items()
        }
        if case.classes > 200:  # in the same rounds as the same step with few classes
            pair = {"few": replace(case, classes=10).steps()["fused"], "many": steps["fused"]}
            compared = best_of(pair, 2 * options.rounds, seconds=60)
            print("fused, 10 against", case.classes, "classes:", compared, flush=True)
        else:
            compared = None
        peaks = {step: memory_of(case, step, options.threads) for step in steps}
        work = {step: gigaflops(task) for step, task in steps.items()}
        rows[case.name] = {
            "batch": case.batch,
            "seconds": seconds,
            "kernels": kernels,
            "gigaflops": work,
            "mib": peaks,
        }
        if compared:
            rows[case.name]["compared"] = compared
        times = {step: f"{value / seconds['natural']:.2f}x" for step, value in seconds.items()}
        print(
            case.name,
            f"natural {1e3 * seconds['natural']:.0f} ms",
            times,
            {step: f"{value:.0f} MiB" for step, value in peaks.items()},
            flush=True,
        )
        save("training", {"threads": options.threads, "rows": rows})


if __name__ == "__main__":
    main()
