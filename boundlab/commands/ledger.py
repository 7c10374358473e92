"""The results of a certification so far, and the files that they are saved in: margins and attacks
in JSON (journal.py), inputs that were found beside it (counterexamples.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boundlab.commands.certificates import AttackRun, Run, Task
from boundlab.commands.counterexamples import COUNTEREXAMPLES, Counterexamples
from boundlab.commands.journal import Journal, plain, refuse_to_replace
from boundlab.errors import ArgumentError


class Ledger:
    """The runs so far, by method, radius and time for an image, attacks by radius and effort,
    counterexamples, and the file they are saved in, if any."""

    def __init__(
        self, journal: Journal | None, task: Task, labels: Tensor, predictions: Tensor
    ) -> None:
        self.journal, self.task = journal, task
        self.labels, self.predictions = labels, predictions
        self.examples = Counterexamples.none(task.classes)
        self._runs: dict[tuple[str, float, float | None], Run] = {}
        self._attacks: dict[tuple[float, int, int], AttackRun] = {}
        self._unsaved_examples = False

    @staticmethod
    def open(
        path: Path | str | None, task: Task, labels: Tensor, predictions: Tensor, resume: bool
    ) -> Ledger:
        """A new ledger, or with ``resume`` the one in the file. Without it, a file that is there is
        an error: it is never written over."""
        if path is None:
            return Ledger(None, task, labels, predictions)
        ledger = Ledger(Journal(Path(path), "verdicts", task), task, labels, predictions)
        if resume:
            ledger._read()
        else:
            refuse_to_replace(Path(path))
            refuse_to_replace(Path(path).with_name(COUNTEREXAMPLES))
        return ledger

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._runs.values())

    @property
    def attacks(self) -> tuple[AttackRun, ...]:
        return tuple(self._attacks.values())

    def get(self, method: str, radius: float, timeout: float | None = None) -> Run:
        """The run so far; one without images if there is none."""
        nothing = torch.zeros(0, self.task.classes - 1, dtype=torch.float64)
        empty = Run(method, radius, nothing, 0.0, timeout)
        return self._runs.get((method, radius, timeout), empty)

    def put(self, run: Run) -> None:
        self._runs[run.method, run.radius, run.timeout] = run

    def get_attack(self, radius: float, steps: int, restarts: int) -> AttackRun:
        """The attack so far; one without images if there is none."""
        empty = AttackRun.none(radius, steps, restarts)
        return self._attacks.get((radius, steps, restarts), empty)

    def put_attack(self, run: AttackRun, found: Counterexamples) -> None:
        """The attack so far, and what it has found since the last time."""
        self._attacks[run.radius, run.steps, run.restarts] = run
        self.add(found)

    def add(self, found: Counterexamples) -> None:
        """Counterexamples behind those that are there."""
        if len(found):
            self.examples = self.examples.joined(found)
            self._unsaved_examples = True

    def save_if_due(self) -> None:
        """Save if that was long ago."""
        if self.journal is not None and self.journal.is_due:
            self.save()

    def save(self) -> None:
        """Write the files, unless another process has written them since this one looked."""
        if self.journal is None:
            return
        self.journal.check()
        if self._unsaved_examples:
            self.examples.write(self.journal.path.with_name(COUNTEREXAMPLES))
            self._unsaved_examples = False
        self.journal.save(
            {
                "labels": self.labels.tolist(),
                "predictions": self.predictions.tolist(),
                "runs": [_run_entry(run) for run in self.runs],
                "attacks": [_attack_entry(run) for run in self.attacks],
            }
        )

    def _read(self) -> None:
        assert self.journal is not None
        content, path = self.journal.read(), self.journal.path
        if content is None:
            return
        with self.journal.reading():
            runs = [_read_run(entry, self.task) for entry in content["runs"]]
            attacks = [_read_attack(entry, self.task) for entry in content["attacks"]]
        for run in runs:
            if len(run.margins) > self.task.images or run.margins.shape[1] != self.task.classes - 1:
                raise ArgumentError(
                    f"{path} is damaged: the run {run.method} at {run.radius:g} has margins of "
                    f"shape {tuple(run.margins.shape)}; move it away"
                )
            self.put(run)
        self.examples = Counterexamples.read(path.with_name(COUNTEREXAMPLES), self.task.classes)
        for attack in attacks:
            lost = ~torch.isin(attack.images[attack.violated], self.examples.image)
            kept = ~torch.isin(attack.images, attack.images[attack.violated][lost])
            self.put_attack(attack.taken(kept), self.examples.taken(slice(0)))


def _run_entry(run: Run) -> dict[str, Any]:
    entry = {
        "method": run.method,
        "radius": run.radius,
        "seconds": run.seconds,
        "margins": [plain(row) for row in run.margins],
    }
    if run.timeout is not None:
        entry["timeout"] = run.timeout
    return entry


def _read_run(entry: dict[str, Any], task: Task) -> Run:
    values = [[float(value) for value in row] for row in entry["margins"]]
    margins = torch.tensor(values, dtype=torch.float64)
    if values:
        margins = margins.reshape(len(values), -1)
    else:
        margins = margins.reshape(0, task.classes - 1)
    timeout = None
    if "timeout" in entry:
        timeout = float(entry["timeout"])
    method, radius, seconds = str(entry["method"]), float(entry["radius"]), float(entry["seconds"])
    return Run(method, radius, margins, seconds, timeout)


def _attack_entry(run: AttackRun) -> dict[str, Any]:
    return {
        "radius": run.radius,
        "steps": run.steps,
        "restarts": run.restarts,
        "seconds": run.seconds,
        "images": run.images.tolist(),
        "classes": run.classes.tolist(),
        "margins": plain(run.margins),
    }


def _read_attack(entry: dict[str, Any], task: Task) -> AttackRun:
    images = torch.tensor(entry["images"], dtype=torch.long)
    classes = torch.tensor(entry["classes"], dtype=torch.long)
    margins = torch.tensor([float(value) for value in entry["margins"]], dtype=torch.float64)
    if not images.shape == classes.shape == margins.shape or bool((images >= task.images).any()):
        raise ValueError("attacks on images that there are not")
    return AttackRun(
        float(entry["radius"]),
        int(entry["steps"]),
        int(entry["restarts"]),
        images,
        classes,
        margins,
        float(entry["seconds"]),
    )
