"""Two versions of this project on the same questions, in turn: what a change costs.

    git worktree add ../before COMMIT python -m benchmarks.compare ../before [--parts verification
    training memory] [--only TEXT] [--rounds N] [--threads N]

Each version is a process of its own, with its own benchmarks; one works while the other waits. A
round asks both, and rounds take turns in who is first. The ratio is after / before: of the best
rounds, and of the medians.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PARTS = ("verification", "training", "memory")
LEAST = 1.0
"""Seconds that a version works on a row at least; then it may have had more rounds than asked
for."""
MOST = 60.0
"""Seconds after which a version gets no more rounds, if it had three."""


# -- one version -----------------------------------------------------------------------------------


def rows(part: str) -> Iterator[str]:
    """The names of the rows of a part, as this version has them."""
    if part == "verification":
        from benchmarks.workloads import WORKLOADS

        yield from (
            f"{name}/{method}"
            for name, workload in WORKLOADS.items()
            for method in workload.batches
        )
    elif part == "training":
        from benchmarks.training import CASES

        yield from (
            f"{case.name}/{step}"
            for case in CASES
            for step in ("natural", "ibp", "fused", "unfused")
            if case.runs(step)
        )
    else:
        from benchmarks.memory import CASES as QUESTIONS

        yield from (f"{name}/{'dense' if dense else 'windows'}" for name, dense in QUESTIONS)


def task_of(part: str, row: str) -> Callable[[], Any]:
    """What is timed for a row of verification or training."""
    name, _, how = row.rpartition("/")
    if part == "training":
        from benchmarks.training import CASES

        return next(case for case in CASES if case.name == name).steps()[how]
    import torch

    import boundlab as bl
    from benchmarks.workloads import WORKLOADS

    workload = WORKLOADS[name]
    x, labels = workload.batch(how, 2 if name == "encoder" else 10)
    net = bl.capture(workload.network(), x)
    region = bl.Linf(x, workload.eps)
    return torch.no_grad()(lambda: net.margins(region, labels, method=how))


def serve(threads: int) -> None:
    """Read one row a line, as JSON, and answer with the seconds that it took; the first time it is
    done twice."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    known: dict[tuple[str, str], Callable[[], Any]] = {}
    for line in sys.stdin:
        part, row = json.loads(line)
        if (part, row) not in known:
            known = {(part, row): task_of(part, row)}
            known[part, row]()
        began = time.perf_counter()
        known[part, row]()
        print(json.dumps(time.perf_counter() - began), flush=True)


# -- both ------------------------------------------------------------------------------------------


class Version:
    """A checkout and the process that works for it."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads = folder, threads
        self.environment = {**os.environ, "PYTHONPATH": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", "--threads", str(threads)],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, part: str, row: str) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([part, row]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.folder} failed at {row}: see its message above")
        return float(json.loads(answer))

    def mebibytes(self, row: str) -> float:
        """The most that the tensors of a question take at once, in a process of its own."""
        name, _, form = row.rpartition("/")
        call = [
            sys.executable,
            "-m",
            "benchmarks.memory",
            "--threads",
            str(self.threads),
            "--once",
            name,
            form,
        ]
        done = subprocess.run(
            call,
            cwd=self.folder,
            env=self.environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return float(json.loads(done.stdout.splitlines()[-1])["tensors_mib"])

    @property
    def commit(self) -> str:
        call = ["git", "-C", str(self.folder), "describe", "--always", "--dirty"]
        return subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()


def compare(before: Version, after: Version, part: str, row: str, rounds: int) -> dict[str, float]:
    if part == "memory":
        sizes = before.mebibytes(row), after.mebibytes(row)
        return {"before": sizes[0], "after": sizes[1], "ratio": sizes[1] / sizes[0]}
    seconds: dict[Version, list[float]] = {before: [], after: []}
    while True:
        done, spent = len(seconds[after]), sum(seconds[after])
        if (done >= rounds and spent >= LEAST) or (done >= 3 and spent > MOST):
            break
        for version in (before, after) if done % 2 == 0 else (after, before):
            seconds[version].append(version.seconds(part, row))
    best = {version: min(found) for version, found in seconds.items()}
    usual = {version: statistics.median(found) for version, found in seconds.items()}
    ratios = {"ratio": best[after] / best[before], "of medians": usual[after] / usual[before]}
    return {"before": best[before], "after": best[after], **ratios, "rounds": len(seconds[after])}


def means(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """The geometric mean of the ratios, by method or step."""
    groups: dict[str, list[float]] = {}
    for row, figures in found.items():
        groups.setdefault(row.rpartition("/")[2], []).append(math.log(figures["ratio"]))
    return {group: math.exp(statistics.fmean(logs)) for group, logs in groups.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.threads)
        return
    if options.before is None:
        parser.error("name the folder of the version before")
    from benchmarks.timing import save

    before, after = (
        Version(options.before.resolve(), options.threads),
        Version(HERE, options.threads),
    )
    result: dict[str, Any] = {
        "before": before.commit,
        "after": after.commit,
        "threads": options.threads,
        "parts": {},
    }
    for part in options.parts:
        found = result["parts"][part] = {}
        for row in rows(part):
            if options.only not in row:
                continue
            found[row] = compare(before, after, part, row, options.rounds)
            unit = "MiB" if part == "memory" else "ms"
            shown = {
                key: value if part == "memory" else 1e3 * value for key, value in found[row].items()
            }
            medians = (
                f" (medians {found[row]['of medians']:.3f})" if "of medians" in found[row] else ""
            )
            print(
                f"{part} {row}: {shown['before']:.1f} -> {shown['after']:.1f} {unit}, "
                f"{found[row]['ratio']:.3f}{medians}",
                flush=True,
            )
            save("compare", result)
        print(
            f"{part}, geometric means:",
            {group: f"{mean:.3f}" for group, mean in means(found).items()},
            flush=True,
        )


if __name__ == "__main__":
    main()
