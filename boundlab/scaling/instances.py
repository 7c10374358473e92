"""Instances of a list on the nodes of a Ray cluster, each in a fresh process there."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from boundlab.commands.benchmark import Plan, Runner
from boundlab.commands.competition import ERROR
from boundlab.commands.outcomes import Outcome
from boundlab.commands.processes import GRACE, Task, run_tasks
from boundlab.scaling.parcels import Parcel, Sender, new_folder, node_folder
from boundlab.scaling.ray_pool import NodeTrouble, Pool, connected
from boundlab.storage.files import write_atomically

ENDS = (".onnx", ".onnx.gz", ".vnnlib", ".vnnlib.gz")
"""Of names of files that travel."""


@dataclass(frozen=True)
class Done:
    """What a process on a node has left: its outcome, and the content of its result file."""

    outcome: Outcome
    result: bytes


@dataclass(frozen=True)
class RaySpread:
    """Gives tasks to the nodes of a cluster. The files that their commands name travel with
    them."""

    pool: Pool
    grace: float = GRACE

    def __call__(self, tasks: Sequence[Task]) -> Generator[tuple[Task, Outcome], None, None]:
        """Tasks with their outcomes, in the order in which they end."""
        sender = Sender(self.pool)
        calls = [(sender.token, task, parcels(task, sender), self.grace) for task in tasks]
        try:
            for ended in self.pool.run(work, calls):
                task = tasks[ended.number]
                if ended.lost is not None:
                    yield task, Outcome(ERROR, 0.0, error=str(ended.lost))
                    continue
                done: Done = ended.value
                task.folder.mkdir(parents=True, exist_ok=True)
                write_atomically(task.result, done.result)
                yield task, done.outcome
        finally:
            sender.clean()


def parcels(task: Task, sender: Sender) -> dict[str, Parcel]:
    """The files that a command names, but its first word, by their paths."""
    found = {}
    for word in task.command[1:]:
        path = file_named(word)
        if path is not None:
            found[str(path)] = sender.parcel(path)
    return found


def file_named(word: str) -> Path | None:
    """The network or property that a word of a command is, or names behind ``=``. Other files do
    not travel: a file of this folder may be called as a word is."""
    if not word.endswith(ENDS):
        return None
    for text in (word, word.partition("=")[2]):
        try:
            if text and Path(text).is_file():
                return Path(text)
        except OSError:  # no name that a file can have
            continue
    return None


def work(token: str, task: Task, files: Mapping[str, Parcel], grace: float) -> Done:
    """Do a task on this node; another one may be able to if the system refuses here."""
    try:
        return work_here(token, task, files, grace)
    except OSError as error:
        raise NodeTrouble(f"{type(error).__name__}: {error}") from error


def work_here(token: str, task: Task, files: Mapping[str, Parcel], grace: float) -> Done:
    """Do a task as :func:`run_tasks` does it on one machine."""
    folder = node_folder(token)
    own = {path: str(parcel.unpacked(folder)) for path, parcel in files.items()}
    here = new_folder(token)
    try:
        words = [moved(word, own) for word in task.command[1:]]
        words = [word.replace(str(task.folder), str(here)) for word in words]
        local = Task(task.instance, (interpreter(task.command[0]), *words), here)
        ((_, outcome),) = run_tasks([local], 1, grace)
        error = outcome.error
        for path, there in own.items():
            error = error.replace(there, path)
        result = b""
        if local.result.exists():
            result = local.result.read_bytes()
        return Done(replace(outcome, error=error), result)
    finally:
        shutil.rmtree(here, ignore_errors=True)


def moved(word: str, places: Mapping[str, str]) -> str:
    """A word of a command that names a file, with its path on this node."""
    for path, there in places.items():
        if word == path:
            return there
        if word.endswith(f"={path}"):
            return word.removesuffix(path) + there
    return word


def interpreter(word: str) -> str:
    """The first word of a command on this node: its own Python for the Python of another."""
    if Path(word).name.startswith("python"):
        return sys.executable
    return word


# -- of commands -----------------------------------------------------------------------------------


def plan_on(address: str | None, plan: Plan) -> Plan:
    """The plan as a cluster does it: a process that was given one CPU uses one."""
    if address is None:
        return plan
    return replace(plan, threads=plan.threads or 1)


@contextmanager
def spread(address: str | None, plan: Plan, jobs: int | None) -> Iterator[Runner | None]:
    """What does the tasks of a plan on a Ray cluster; None without an address. jobs: processes at
    once, if it was said."""
    if address is None:
        yield None
        return
    with connected(address, jobs, plan.threads or 1) as pool:
        yield RaySpread(pool)
