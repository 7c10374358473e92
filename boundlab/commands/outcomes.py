"""What came of instances, and the file that it is noted in, a line each."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

from boundlab.commands.competition import DECIDED, ERROR, WORDS, Instance
from boundlab.errors import ArgumentError, BoundlabError
from boundlab.storage.files import write_atomically


@dataclass(frozen=True)
class Outcome:
    """What is noted of an instance. status: the competition's word. seconds: of its process, with
    everything. stage: the one that decided, or was last at work. bound: how far from a proof the
    search was; None if nothing was bounded. error: what went wrong, in words. stages: where the
    time of the search went (:func:`stages_text`). arithmetic: that a proof holds for; empty if
    rounding is taken for nothing in a part of it, or nothing is proved."""

    status: str
    seconds: float
    domains: int = 0
    bound: float | None = None
    stage: str = ""
    error: str = ""
    stages: str = ""
    arithmetic: str = ""

    @property
    def is_decided(self) -> bool:
        return self.status in DECIDED

    @property
    def spent(self) -> Mapping[str, float]:
        """Seconds of each stage, in the order in which they were first at work."""
        return stage_seconds(self.stages)

    @staticmethod
    def failed(error: BaseException, seconds: float) -> Outcome:
        """What an exception prevented."""
        text = " ".join(str(error).split())
        if not isinstance(error, BoundlabError):
            text = f"{type(error).__name__}: {text}"
        return Outcome(ERROR, seconds, error=text)

    def as_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> Outcome:
        """What :meth:`as_json` wrote; ValueError or TypeError for anything else."""
        found = Outcome(**json.loads(text))
        if found.status not in WORDS:
            raise ValueError(f"{found.status!r} is no status")
        return found

    def as_words(self) -> list[str]:
        """Its fields as they stand in a line."""
        return ["" if value is None else str(value) for value in astuple(self)]

    @staticmethod
    def from_words(words: Sequence[str]) -> Outcome:
        """What :meth:`as_words` gave; ValueError for anything else."""
        status, seconds, domains, bound, stage, error, stages, arithmetic = words
        if status not in WORDS:
            raise ValueError(f"{status!r} is no status")
        known = float(bound) if bound else None
        stage_seconds(stages)
        numbers = float(seconds), int(domains), known
        return Outcome(status, *numbers, stage, error, stages, arithmetic)


def stages_text(stages: Iterable[tuple[str, float]]) -> str:
    """Stages with their seconds, in words: ``attack 0.12; bounds 0.5``. A stage that was at work
    several times is named once, with the sum."""
    found: dict[str, float] = {}
    for name, seconds in stages:
        found[name] = found.get(name, 0.0) + seconds
    return "; ".join(f"{name} {seconds:.4g}" for name, seconds in found.items())


def stage_seconds(text: str) -> dict[str, float]:
    """What :func:`stages_text` wrote; ValueError for anything else."""
    found = {}
    for part in text.split("; ") if text else ():
        name, _, seconds = part.rpartition(" ")
        found[name] = float(seconds)
    return found


HEADER = ["onnx", "vnnlib", *(field.name for field in fields(Outcome))]
BEFORE = (HEADER[:-1], HEADER[:-2])
"""The headers of files that were written before arithmetics, and before stages were noted."""


class OutcomeFile:
    """Outcomes by network and property, in a CSV file to which each is added as it comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: dict[tuple[str, str], Outcome] = {}

    @staticmethod
    def open(path: Path, resume: bool) -> OutcomeFile:
        """A new file, or with ``resume`` the one that is there. Without it, a file that is there is
        an error: it is never written over."""
        found = OutcomeFile(path)
        if not path.exists():
            write_atomically(path, _line(HEADER))
        elif resume:
            found._read()
        else:
            raise ArgumentError(
                f"{path.parent} already holds results: give --resume to go on from them, or "
                "another --output"
            )
        return found

    def get(self, instance: Instance) -> Outcome | None:
        return self._held.get((instance.onnx, instance.vnnlib))

    def put(self, instance: Instance, outcome: Outcome) -> None:
        """Add a line, at once and to the end: whatever interrupts it, lines before stay whole. One
        for which the disk has no room is taken back."""
        self._held[instance.onnx, instance.vnnlib] = outcome
        line = _line([instance.onnx, instance.vnnlib, *outcome.as_words()]).encode()
        try:
            with self.path.open("ab", buffering=0) as file:
                _write_whole(file, line)
        except OSError as error:
            raise ArgumentError(f"cannot write {self.path}: {error.strerror}") from error

    def _read(self) -> None:
        """What the file holds. A last line that was not written to its end is dropped; a file from
        before some columns were noted gets these."""
        try:
            text = self.path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]
            rows = list(csv.reader(io.StringIO(whole)))
            is_old = bool(rows) and rows[0] in BEFORE
            if not is_old and (not rows or rows[0] != HEADER):
                raise ValueError("its first line is another")
            missing = [""] * (len(HEADER) - len(rows[0]))
            for onnx, vnnlib, *words in rows[1:]:
                words = [*words, *missing]
                self._held[onnx, vnnlib] = Outcome.from_words(words)
        except OSError as error:
            raise ArgumentError(f"cannot read {self.path}: {error.strerror}") from error
        except (ValueError, csv.Error) as error:
            raise ArgumentError(
                f"{self.path} is no file of results of this version of boundlab ({error}): move it "
                "away, or give another --output"
            ) from error
        if is_old:
            whole = _line(HEADER)
            for names, outcome in self._held.items():
                whole += _line([*names, *outcome.as_words()])
        if whole != text:
            write_atomically(self.path, whole)


def _write_whole(file: io.FileIO, content: bytes) -> None:
    """Write all of a content to the end of a file, or nothing: a system that has no room for all
    writes a part first, and says so at the next call only."""
    before = os.fstat(file.fileno()).st_size
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), before)
        raise


def _line(words: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([" ".join(word.split()) for word in words])
    return text.getvalue()
