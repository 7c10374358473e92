"""200 instances with planted faults: every one ends with a verdict or a named error, none twice,
none missing, whatever happens to processes, to files, to the disk and to the run itself."""

from __future__ import annotations

import csv
import gzip
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from boundlab.commands.benchmark import Plan, Runner, verify_instances
from boundlab.commands.competition import ERROR, SAT, TIMEOUT, UNSAT, Instance
from boundlab.commands.outcomes import Outcome, OutcomeFile
from boundlab.commands.processes import Task, run_tasks
from boundlab.errors import ArgumentError
from boundlab.scaling.instances import RaySpread
from boundlab.scaling.ray_pool import connected
from tests.helpers.instances import LARGEST, write_network, write_property
from tests.helpers.onnx_files import model, node, written

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SAYS = (
    "open('outcome.json', 'w').write('{{\"status\": \"{0}\", \"seconds\": 1}}'); "
    "open('result.txt', 'w').write('{0}\\n((X_0 1)(Y_0 2))')"
)
CODES = {
    "unsat": (SAYS.format("unsat"), UNSAT, ""),
    "sat": (SAYS.format("sat"), SAT, ""),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", ERROR, "ended by signal 9"),
    "hangs": ("exec('while True: pass')", TIMEOUT, "killed 1 s after its time"),
    "ignores": ("signal.signal(15, signal.SIG_IGN); time.sleep(1000)", TIMEOUT, "killed"),
    "full": ("open('/dev/full', 'w').write('x' * 9999)", ERROR, "No space left on device"),
    "memory": ("raise MemoryError('no more of it')", ERROR, "MemoryError"),
    "silent": ("pass", ERROR, "no answer"),
    "half": ("open('outcome.json', 'w').write('{\"status\"')", ERROR, "no answer"),
    "orphans": ("os.fork() or time.sleep(2); " + SAYS.format("unsat"), UNSAT, ""),
}
"""By name: what a process does, the status that comes of it, and words of its error."""
REAL = {
    "net.onnx,sat": (SAT, ""),
    "net.onnx,unsat": (UNSAT, ""),
    "garbage.onnx,sat": (ERROR, "is no ONNX file"),
    "torn.onnx,sat": (ERROR, "torn.onnx"),
    "hungry.onnx,three": (ERROR, "memory"),
    "net.onnx,nowhere": (ERROR, "no file nowhere.vnnlib"),
    "net.onnx,nonsense": (ERROR, "nonsense.vnnlib"),
}
"""Instances that boundlab itself is asked about, as above."""
COUNT = 200
ROOM = 16 << 10
"""Bytes that are left on the disk that becomes full."""


class Faulty(Plan):
    """Processes of boundlab for files that there are, and of a few lines of Python for others."""

    def command(self, instance: Instance, task: Path) -> tuple[str, ...]:
        kind = instance.onnx.partition("-")[0]
        if kind not in CODES:
            return super().command(instance, task)
        begin = f"import os, signal, time; os.chdir(r'{task}'); "
        return (sys.executable, "-S", "-c", begin + CODES[kind][0])


def write_files(folder: Path) -> None:
    """A network, one that is torn, one whose bounds need gigabytes, and properties."""
    content = write_network(folder).read_bytes()
    (folder / "torn.onnx.gz").write_bytes(gzip.compress(content)[:-20])
    (folder / "garbage.onnx").write_bytes(b"nothing")
    write_property(folder, LARGEST - 1e-3, "sat.vnnlib")
    write_property(folder, LARGEST + 1e-3, "unsat.vnnlib")
    write_property(folder, 1e6, "three.vnnlib")
    (folder / "nonsense.vnnlib").write_text("(assert")
    wide = np.ones((2, 16000), np.float32)  # its outer product takes 1 GB
    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("Tanh", ["h"], ["t"]),
        node("Reshape", ["t", "column"], ["c"]),
        node("Reshape", ["t", "row"], ["r"]),
        node("MatMul", ["c", "r"], ["m"]),
        node("Mul", ["m", "m"], ["p"]),
        node("Add", ["m", "p"], ["s"]),  # three such at once
        node("ReduceSum", ["s", "axes"], ["y"], keepdims=1),
    ]
    constants = {
        "a": wide,
        "column": np.array([-1, 16000, 1]),
        "row": np.array([-1, 1, 16000]),
        "axes": np.array([1, 2]),
    }
    written(model(nodes, {"x": ("n", 2)}, ["y"], constants), folder, "hungry.onnx")


def instances() -> list[Instance]:
    """Those of boundlab first, then the others in turn."""
    found = []
    for name in REAL:
        network, prop = name.split(",")
        found.append(Instance(network, f"{prop}.vnnlib", 600.0))
    kinds = [*["unsat", "sat"] * 8, *CODES]
    for number in range(COUNT - len(found)):
        kind = kinds[number % len(kinds)]
        seconds = 0.5 if CODES[kind][1] == TIMEOUT else 60.0
        found.append(Instance(f"{kind}-{number}.onnx", "p.vnnlib", seconds))
    return found


@contextmanager
def runner(place: str) -> Iterator[Runner]:
    if place == "here":
        yield lambda tasks: run_tasks(tasks, 2, grace=1.0)
        return
    pytest.importorskip("ray", reason="the extra ray is not installed: pip install 'boundlab[ray]'")
    with connected("local", 2) as pool:
        yield RaySpread(pool, grace=1.0)


def until(run: Runner, count: int) -> Runner:
    """A runner that Ctrl-C interrupts after so many tasks."""

    def interrupted(tasks: Sequence[Task]) -> Generator[tuple[Task, Outcome], None, None]:
        with closing(run(tasks)) as found:
            for number, one in enumerate(found):
                if number == count:
                    raise KeyboardInterrupt
                yield one

    return interrupted


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of a megabyte in a folder, where the system lets us mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path) -> None:
    """A file that leaves little room on its disk."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(max(os.fstat(file.fileno()).st_size - ROOM, 0))


def read(output: Path) -> list[list[str]]:
    with (output / "results.csv").open(newline="") as file:
        return list(csv.reader(file))[1:]


@pytest.mark.parametrize("place", ["here", "ray"])
def test_every_instance_ends_once(place: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    listed, console = instances(), Console(quiet=True)
    assert len(set(listed)) == COUNT
    with runner(place) as run, small_disk(tmp_path / "disk") as is_small:
        plan = Faulty(listed, tmp_path, tmp_path / "disk" / "out", 2, 1, "3 GiB")
        results = plan.output / "results.csv"
        with pytest.raises(KeyboardInterrupt):
            verify_instances(plan, OutcomeFile.open(results, False), console, until(run, 50))
        kept = read(plan.output)
        assert len(kept) >= 50
        if is_small:
            fill(tmp_path / "disk" / "ballast")
            with pytest.raises(ArgumentError, match="No space left on device"):
                verify_instances(plan, OutcomeFile.open(results, True), console, run)
            (tmp_path / "disk" / "ballast").unlink()
            assert read(plan.output)[: len(kept)] == kept
        before = results.read_text()
        results.write_text(before + "killed-1.onnx,p.vn")  # torn, as by a crash of the machine
        verify_instances(plan, OutcomeFile.open(results, True), console, run)
        assert results.read_text().startswith(before)
        check(plan)


def check(plan: Plan) -> None:
    """Every instance is there once, as it was to end."""
    lines = read(plan.output)
    assert Counter((line[0], line[1]) for line in lines) == {
        (one.onnx, one.vnnlib): 1 for one in plan.instances
    }
    for line in lines:
        name = f"{line[0]},{line[1].removesuffix('.vnnlib')}"
        if name in REAL:
            status, words = REAL[name]
        else:
            _, status, words = CODES[line[0].partition("-")[0]]
        outcome = Outcome.from_words(line[2:])
        assert outcome.status == status and words in outcome.error, (line, status, words)
        assert bool(outcome.error) == bool(words), line
    violated = [line for line in lines if line[2] == SAT]
    written_ones = [path for path in plan.output.rglob("*.counterexample") if path.stat().st_size]
    assert len(written_ones) == len(violated) > 50
