"""What a report about a list of instances is made of: instances, what came of them, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boundlab.commands.benchmark import COUNTEREXAMPLES, Plan, counterexample_names
from boundlab.commands.competition import SAT, Instance
from boundlab.commands.outcomes import Outcome, OutcomeFile

OPTIONAL = ("onnxruntime", "highspy", "onnx", "vnnlib")
"""Packages that take part if they are installed."""


@dataclass(frozen=True)
class Entry:
    """An instance and what came of it, None while nothing has. example: the file of its
    counterexample relative to the report, nothing if there is none."""

    instance: Instance
    outcome: Outcome | None = None
    example: str = ""


@dataclass(frozen=True)
class Sweep:
    """All instances of a list. name: of the list, and of a set that has none; made: how, as pairs
    of words."""

    name: str
    entries: tuple[Entry, ...]
    made: tuple[tuple[str, str], ...] = ()

    def set_of(self, one: Entry) -> str:
        return one.instance.set or self.name

    def by_set(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for one in self.entries:
            found.setdefault(self.set_of(one), []).append(one)
        return found


def sweep_of(plan: Plan, held: OutcomeFile, name: str, made: Sequence[tuple[str, str]]) -> Sweep:
    """What has come of a plan so far."""
    names = counterexample_names(plan.instances)
    entries = []
    for instance in plan.instances:
        outcome = held.get(instance)
        example = ""
        if outcome is not None and outcome.status == SAT:
            example = f"{COUNTEREXAMPLES}/{Path(names[instance]).as_posix()}"
            if not (plan.output / example).is_file():
                example = ""
        entries.append(Entry(instance, outcome, example))
    return Sweep(name, tuple(entries), tuple(made))
