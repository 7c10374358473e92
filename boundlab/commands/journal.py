"""A results file: JSON, always whole, enough to go on from.

It ends with a digest of everything in it, so that a figure that was changed by accident is not
taken for a proof. Whoever wants to deceive can write the digest anew: only what is run again proves
anything.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from boundlab.commands.certificates import Task
from boundlab.errors import ArgumentError
from boundlab.storage.digests import digest
from boundlab.storage.files import write_atomically
from boundlab.version import VERSION

FORMAT = 3
SAVE_SECONDS = 10.0
"""At least this long between two saves on the way; the end of a run and an interruption save at
once."""
WORDS = {
    "model": "another model (or other weights)",
    "data": "other images or labels",
    "images": "another number of images",
    "classes": "another number of classes",
    "norm": "another norm",
    "valid": "another valid range",
    "arithmetic": "another arithmetic",
    "boundlab": "another version of boundlab",
}


class Journal:
    """The file of a task. kind: what it is about, "verdicts" or "radii"."""

    def __init__(self, path: Path, kind: str, task: Task) -> None:
        self.path, self.kind, self.task = path, kind, task
        self._stamp: tuple[int, int] | None = None
        self._saved = time.perf_counter()

    def read(self) -> dict[str, Any] | None:
        """What the file holds, if there is one; an error if it is damaged or of another task."""
        if not self.path.exists():
            return None
        self._stamp = _stamp(self.path)
        with self.reading():
            content: dict[str, Any] = json.loads(self.path.read_text())
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']}")
            written = content.pop("digest")
            if written != digest([json.dumps(content)]):
                raise ArgumentError(
                    f"{self.path} is damaged or was edited: its digest does not fit its content; "
                    "move it away"
                )
            known = dict(content["task"])
            if content["kind"] != self.kind:
                raise ValueError(f"it holds {content['kind']}, not {self.kind}")
        own = _description(self.task)
        different = [words for key, words in WORDS.items() if known.get(key) != own[key]]
        if different:
            raise ArgumentError(
                f"{self.path} was made with {', '.join(different)}: choose another output folder, "
                "or do not resume"
            )
        return content

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Whatever a file of another form raises becomes one line about it."""
        try:
            yield
        except ArgumentError:
            raise
        except OSError as error:
            raise ArgumentError(f"cannot read {self.path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise ArgumentError(
                f"{self.path} is not a results file of this version of boundlab ({error}): move it "
                "away, or do not resume"
            ) from error

    @property
    def is_due(self) -> bool:
        """Whether the last save was long ago."""
        return time.perf_counter() - self._saved > SAVE_SECONDS

    def check(self) -> None:
        """An error if another process has written the file since this one looked."""
        if _stamp(self.path) not in (None, self._stamp):
            raise ArgumentError(
                f"{self.path} is being written by another process: nothing of it is replaced; give "
                "another --output"
            )

    def save(self, held: Mapping[str, Any]) -> None:
        """Write the file."""
        self.check()
        head = {"format": FORMAT, "kind": self.kind, "task": _description(self.task)}
        content = {**head, **held}
        content["digest"] = digest([json.dumps(content)])
        write_atomically(self.path, json.dumps(content, allow_nan=False) + "\n")
        self._stamp = _stamp(self.path)
        self._saved = time.perf_counter()


def refuse_to_replace(*paths: Path) -> None:
    """An error if there is one of some files already."""
    for path in paths:
        if path.exists():
            raise ArgumentError(
                f"{path.parent} already holds results: give --resume to go on from them, or "
                "another --output"
            )


def plain(values: Tensor) -> list[float | str]:
    """Numbers (n,) as numbers; what JSON has no number for as "nan", "inf" or "-inf", which float()
    reads."""
    return [value if math.isfinite(value) else str(value) for value in values.tolist()]


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes whenever the file is replaced; None without a file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


def _description(task: Task) -> dict[str, Any]:
    """The task as JSON gives it back."""
    return {**json.loads(json.dumps(asdict(task))), "boundlab": VERSION}
