"""Many instances, one after the other or several at once, each in a fresh process."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from boundlab.commands.competition import ERROR, SAT, UNSAT, WORDS, Instance, find_file
from boundlab.commands.outcomes import Outcome, OutcomeFile
from boundlab.commands.processes import Task, run_tasks
from boundlab.errors import ArgumentError
from boundlab.storage.files import write_atomically

RESULTS, COUNTEREXAMPLES = "results.csv", "counterexamples"
Runner = Callable[[Sequence[Task]], Generator[tuple[Task, Outcome], None, None]]
"""Gives tasks with their outcomes, in the order in which they end; what a task has left is then in
its folder."""


@dataclass(frozen=True)
class Plan:
    """Instances and how to work on them.

    folder: in which their files lie; output: for results.csv and counterexamples/. jobs: processes
    at once. threads: of each; None for what each finds faster if there are cores for that, else
    one. memory: that each may take, such as "4 GiB". arithmetic: that proofs must hold for.
    """

    instances: Sequence[Instance]
    folder: Path
    output: Path
    jobs: int = 1
    threads: int | None = None
    memory: str | None = None
    arithmetic: str | None = None

    def command(self, instance: Instance, task: Path) -> tuple[str, ...]:
        """What a fresh process is to do; task: the folder for its files."""
        found = [sys.executable, "-m", "boundlab", "verify"]
        files = {name: str(find_file(self.folder, one)) for name, one in instance.networks.items()}
        prop = str(find_file(self.folder, instance.vnnlib))
        if "" in files:
            found += [files[""], prop]
        else:
            found.append(prop)
            for name, file in files.items():
                found += ["--network", f"{name}={file}"]
        found += ["--timeout", repr(instance.timeout)]
        found += ["--result", str(task / "result.txt"), "--json", str(task / "outcome.json")]
        if self.arithmetic is not None:
            found += ["--arithmetic", self.arithmetic]
        threads = self.threads
        if threads is None and 2 * self.jobs > (os.cpu_count() or 1):
            threads = 1
        if threads is not None:
            found += ["--threads", str(threads)]
        if self.memory is not None:
            found += ["--memory", self.memory]
        return tuple(found)


def verify_instances(
    plan: Plan, held: OutcomeFile, console: Console, runner: Runner | None = None
) -> None:
    """Work on all instances that have no outcome yet, with a progress bar; what is done is kept
    whatever interrupts it. runner: of the tasks; None for processes of this machine."""
    if plan.jobs < 1:
        raise ArgumentError(f"--jobs must be at least 1, not {plan.jobs}")
    names = counterexample_names(plan.instances)
    _check_arithmetic(plan, held)
    left = [one for one in plan.instances if held.get(one) is None]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("instances"),
        TimeElapsedColumn(),
    )
    with (
        Progress(*columns, console=console, transient=True) as bar,
        tempfile.TemporaryDirectory() as temporary,
    ):
        shown = bar.add_task("", total=len(plan.instances))
        bar.update(shown, completed=len(plan.instances) - len(left))
        tasks = list(_tasks(plan, left, Path(temporary), held))
        run = runner or (lambda given: run_tasks(given, plan.jobs))
        with closing(run(tasks)) as finished:
            for task, outcome in finished:
                instance = task.instance
                if outcome.status == SAT:
                    _, _, example = task.result.read_text().partition("\n")
                    write_atomically(plan.output / COUNTEREXAMPLES / names[instance], example)
                held.put(instance, outcome)
                done = sum(held.get(one) is not None for one in plan.instances)
                text = f"{instance.name}: {outcome.status}"
                bar.update(shown, completed=done, description=text)


def _check_arithmetic(plan: Plan, held: OutcomeFile) -> None:
    """An error if what is held was proved for less than what is asked for."""
    if plan.arithmetic is None:
        return
    outcomes = [outcome for one in plan.instances if (outcome := held.get(one)) is not None]
    for known in {one.arithmetic for one in outcomes if one.status == UNSAT} - {plan.arithmetic}:
        raise ArgumentError(
            f"{held.path} holds proofs for {known or 'no'} arithmetic, and --arithmetic "
            f"{plan.arithmetic} was asked for: give another --output"
        )


def _tasks(
    plan: Plan, instances: Sequence[Instance], folder: Path, held: OutcomeFile
) -> Iterator[Task]:
    """Tasks for instances; one whose files are not there is noted as an error at once."""
    for number, instance in enumerate(instances):
        own = folder / str(number)
        try:
            yield Task(instance, plan.command(instance, own), own)
        except ArgumentError as error:
            held.put(instance, Outcome(ERROR, 0.0, error=str(error)))


def counterexample_names(instances: Sequence[Instance]) -> Mapping[Instance, str]:
    """The name of a file for the counterexample of each instance, in a folder for each set; names
    that would be the same are numbered."""
    found: dict[Instance, str] = {}
    taken: dict[str, int] = {}
    for instance in instances:
        path = str(Path(instance.set) / instance.name)
        taken[path] = taken.get(path, 0) + 1
        if taken[path] > 1:
            path = f"{path}-{taken[path]}"
        found[instance] = f"{path}.counterexample"
    return found


def summary(instances: Sequence[Instance], held: OutcomeFile, name: str) -> Table:
    """How many instances of each set have which status, and how long they took. name: of a set
    that has none."""
    table = Table(title_justify="left")
    table.add_column("set", no_wrap=True)
    for column in (*WORDS, "median s", "total s"):
        table.add_column(column, justify="right")
    for own, outcomes in by_set(instances, held).items():
        counts = [sum(one.status == word for one in outcomes) for word in WORDS]
        seconds = [one.seconds for one in outcomes]
        median, total = statistics.median(seconds), sum(seconds)
        table.add_row(own or name, *map(str, counts), f"{median:.2f}", f"{total:.1f}")
    return table


def by_set(instances: Sequence[Instance], held: OutcomeFile) -> dict[str, list[Outcome]]:
    """The outcomes so far by the set that they are of."""
    found: dict[str, list[Outcome]] = {}
    for instance in instances:
        outcome = held.get(instance)
        if outcome is not None:
            found.setdefault(instance.set, []).append(outcome)
    return found
