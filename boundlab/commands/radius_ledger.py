"""Radii of images so far, and the files that they are saved in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from boundlab.commands.certificates import Task
from boundlab.commands.counterexamples import COUNTEREXAMPLES, NAMES, Counterexamples
from boundlab.commands.journal import Journal, plain, refuse_to_replace
from boundlab.defaults import MOST, RESTARTS, STEPS, TOLERANCE
from boundlab.errors import ArgumentError
from boundlab.storage.digests import digest


@dataclass(frozen=True)
class RadiusSearch:
    """How radii are searched for: arguments of ``bl.certified_radius``."""

    method: str = "crown"
    most: float = MOST
    tolerance: float = TOLERANCE
    steps: int = STEPS
    restarts: int = RESTARTS


@dataclass(frozen=True, eq=False)
class RadiiSoFar:
    """proved, broken: of the first images, (images so far,) in float64; broken is infinite where no
    violation was found. examples: the violations. seconds: spent in all."""

    proved: Tensor
    broken: Tensor
    examples: Counterexamples
    seconds: float

    def __len__(self) -> int:
        return len(self.proved)

    def joined(self, other: RadiiSoFar) -> RadiiSoFar:
        """Also those of the images behind them, in more time."""
        return RadiiSoFar(
            torch.cat([self.proved, other.proved]),
            torch.cat([self.broken, other.broken]),
            self.examples.joined(other.examples),
            self.seconds + other.seconds,
        )


class RadiusLedger:
    """The file of a search; found: what is known so far."""

    def __init__(self, path: Path, task: Task, search: RadiusSearch, resume: bool) -> None:
        """With ``resume`` the file is read, if there is one; without, one that is there is an
        error."""
        self.search, self.task = search, task
        self.journal = Journal(path, "radii", task)
        self.examples_path = path.with_name(COUNTEREXAMPLES)
        nothing = torch.zeros(0, dtype=torch.float64)
        self.found = RadiiSoFar(nothing, nothing, Counterexamples.none(task.classes), 0.0)
        if resume:
            self._read()
        else:
            refuse_to_replace(path)
            refuse_to_replace(self.examples_path)

    def add(self, part: RadiiSoFar) -> None:
        self.found = self.found.joined(part)
        if self.journal.is_due:
            self.save()

    def save(self) -> None:
        """Write the files, unless another process has written them since this one looked."""
        found = self.found
        self.journal.check()
        if len(found.examples):
            found.examples.write(self.examples_path)
        self.journal.save(
            {
                "search": asdict(self.search),
                "seconds": found.seconds,
                "proved": plain(found.proved),
                "broken": plain(found.broken),
                "examples": _digest(found.examples),
            }
        )

    def _read(self) -> None:
        content, path = self.journal.read(), self.journal.path
        if content is None:
            return
        with self.journal.reading():
            known = RadiusSearch(**content["search"])
            proved, broken = (
                torch.tensor([float(value) for value in content[name]], dtype=torch.float64)
                for name in ("proved", "broken")
            )
            seconds = float(content["seconds"])
            if not len(proved) == len(broken) <= self.task.images:
                raise ValueError(f"{len(proved)} and {len(broken)} radii")
        if known != self.search:
            raise ArgumentError(
                f"{path} is of another search ({_said(known)}; asked is {_said(self.search)}): "
                "choose another output folder"
            )
        held = Counterexamples.read(self.examples_path, self.task.classes)
        held = held.taken(held.image < len(proved))  # a file that is newer than the other
        if _digest(held) != content["examples"]:
            raise ArgumentError(f"{self.examples_path} does not belong to {path}: move both away")
        self.found = RadiiSoFar(proved, broken, held, seconds)


def _digest(examples: Counterexamples) -> str:
    if not len(examples):
        return ""
    return digest([part for name in NAMES for part in (name, getattr(examples, name))])


def _said(search: RadiusSearch) -> str:
    return ", ".join(f"{name} {value}" for name, value in asdict(search).items())
