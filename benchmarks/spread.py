"""What it costs to spread work over processes of Ray, and what it gains.

    python -m benchmarks.spread [--instances N] [--rounds N] [--hard NETWORK PROPERTY]

Calls that do nothing; processes that do nothing, started by this one and by Ray; quick instances of
the competition (BOUNDLAB_SHARED/vnncomp) by one process and two, without Ray and with it, in turn;
one hard instance alone and spread. Needs the extra ray.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rich.console import Console

import boundlab as bl
from benchmarks.vnncomp import FOLDER, read_known
from boundlab.commands.benchmark import Plan, Runner, verify_instances
from boundlab.commands.competition import Instance
from boundlab.commands.outcomes import OutcomeFile
from boundlab.commands.processes import Task, run_tasks
from boundlab.scaling.instances import RaySpread
from boundlab.scaling.ray_pool import LOCAL, Pool, connected
from boundlab.scaling.spreading import verify_spread

SETS = ("acasxu_2023", "rl_benchmarks", "reach_prob_density")
ANSWER = 'open("{}", "w").write(\'{{"status": "unsat", "seconds": 0}}\')'


def nothing(number: int) -> int:
    """A call that does nothing."""
    return number


def calls(pool: Pool, count: int = 200) -> float:
    """Seconds of a call, after the first ones."""
    found = []
    for _ in range(4):
        start = time.perf_counter()
        list(pool.run(nothing, [(number,) for number in range(count)]))
        found.append((time.perf_counter() - start) / count)
    return statistics.median(found[1:])


def processes(run: Runner, count: int = 40) -> float:
    """Seconds of a process that writes its outcome and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = [_fake(Path(folder) / str(number)) for number in range(count)]
        start = time.perf_counter()
        with closing(run(tasks)) as found:
            assert sum(outcome.status == "unsat" for _, outcome in found) == count
        return (time.perf_counter() - start) / count


def _fake(folder: Path) -> Task:
    code = ANSWER.format(folder / "outcome.json")
    instance = Instance(folder.name, "", 600.0)
    return Task(instance, (sys.executable, "-S", "-c", code), folder)


def per_minute(plan: Plan, run: Runner | None) -> tuple[float, list[str]]:
    """Instances a minute, and their verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        plan = replace(plan, output=Path(folder))
        held = OutcomeFile.open(plan.output / "results.csv", False)
        start = time.perf_counter()
        verify_instances(plan, held, Console(quiet=True), run)
        seconds = time.perf_counter() - start
        outcomes = [held.get(instance) for instance in plan.instances]
    words = [outcome.status for outcome in outcomes if outcome is not None]
    return 60 * len(words) / seconds, words


def rates(instances: Sequence[Instance], rounds: int) -> None:
    """In turn, so that other work on the machine meets all ways alike."""
    found: dict[str, list[float]] = {}
    verdicts: list[list[str]] = []
    for _ in range(rounds):
        for workers in (1, 2):
            plan = Plan(instances, FOLDER, Path(), workers, 1)
            rate, words = per_minute(plan, None)
            found.setdefault(f"--jobs {workers}", []).append(rate)
            verdicts.append(words)
            with connected(LOCAL, workers) as pool:
                list(pool.run(nothing, [(number,) for number in range(workers)]))
                rate, words = per_minute(plan, RaySpread(pool))
            found.setdefault(f"--ray local --jobs {workers}", []).append(rate)
            verdicts.append(words)
    for name, numbers in found.items():
        shown = ", ".join(f"{number:.1f}" for number in numbers)
        print(f"{name}: {shown} instances a minute", flush=True)
    for instance, *words in zip(instances, *verdicts, strict=True):
        if len(set(words)) > 1:
            print(f"{instance.onnx} {instance.vnnlib}: {', '.join(words)}", flush=True)


def hard(network: Path, prop: Path, timeout: float) -> None:
    model, asked = bl.load_onnx(network), bl.load_vnnlib(prop)
    print("alone:", bl.verify(model, asked, timeout), flush=True)
    for workers in (1, 2):
        found = verify_spread(model, asked, timeout, ray=LOCAL, workers=workers)
        print(f"{workers} workers:", found, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--hard", nargs=2, type=Path, metavar=("NETWORK", "PROPERTY"))
    options = parser.parse_args()
    if options.hard:
        hard(*options.hard, options.timeout)
        return
    with connected(LOCAL, 2) as pool:
        print(f"a call: {1e3 * calls(pool):.1f} ms", flush=True)
        here, there = (lambda tasks: run_tasks(tasks, 2)), RaySpread(pool)
        for _ in range(3):
            print(
                f"a process: {1e3 * processes(here):.0f} ms here, "
                f"{1e3 * processes(there):.0f} ms by Ray",
                flush=True,
            )
    known = read_known(FOLDER / "quick.csv", SETS, options.timeout)
    step = max(len(known) // options.instances, 1)
    rates([one.instance for one in known[::step]][: options.instances], options.rounds)


if __name__ == "__main__":
    main()
