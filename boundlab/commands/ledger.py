"""The results file of a certification: JSON, always whole, enough to go on from.

It ends with a digest of everything in it, so that a figure that was changed by accident is not
taken for a proof. Whoever wants to deceive can write the digest anew: only a certification that is
run again proves anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boundlab.commands.certificates import Run, Task
from boundlab.errors import ArgumentError
from boundlab.graph.graph import op_name
from boundlab.net import Net
from boundlab.storage.digests import digest
from boundlab.storage.files import write_atomically
from boundlab.version import VERSION

FORMAT = 2
WORDS = {
    "model": "another model (or other weights)",
    "data": "other images or labels",
    "images": "another number of images",
    "classes": "another number of classes",
    "norm": "another norm",
    "valid": "another valid range",
    "boundlab": "another version of boundlab",
}


class Ledger:
    """The runs so far, by method and radius, and the file they are saved in, if any."""

    def __init__(self, path: Path | None, task: Task, labels: Tensor, predictions: Tensor) -> None:
        self.path, self.task = path, task
        self._fixed = {"labels": labels.tolist(), "predictions": predictions.tolist()}
        self._runs: dict[tuple[str, float], Run] = {}
        self._stamp: tuple[int, int] | None = None

    @staticmethod
    def open(
        path: Path | str | None, task: Task, labels: Tensor, predictions: Tensor, resume: bool
    ) -> Ledger:
        """A new ledger, or with ``resume`` the one in the file. Without it, a file that is there is
        an error: it is never written over."""
        if path is None:
            return Ledger(None, task, labels, predictions)
        path = Path(path)
        ledger = Ledger(path, task, labels, predictions)
        if not resume:
            refuse_to_replace(path)
        elif path.exists():
            ledger._stamp = _stamp(path)
            ledger._read(path)
        return ledger

    def get(self, method: str, radius: float) -> Run:
        """The run so far; one without images if there is none."""
        empty = Run(method, radius, torch.zeros(0, self.task.classes - 1, dtype=torch.float64), 0.0)
        return self._runs.get((method, radius), empty)

    def put(self, run: Run) -> None:
        self._runs[run.method, run.radius] = run

    def save(self) -> None:
        """Write the file, unless another process has written it since this one looked."""
        if self.path is not None:
            if _stamp(self.path) not in (None, self._stamp):
                raise ArgumentError(
                    f"{self.path} is being written by another process: nothing of it is replaced; "
                    "give another --output"
                )
            runs = [
                {
                    "method": run.method,
                    "radius": run.radius,
                    "seconds": run.seconds,
                    "margins": _plain(run.margins),
                }
                for run in self._runs.values()
            ]
            content = {
                "format": FORMAT,
                "task": _description(self.task),
                **self._fixed,
                "runs": runs,
            }
            content["digest"] = digest([json.dumps(content)])
            write_atomically(self.path, json.dumps(content, allow_nan=False) + "\n")
            self._stamp = _stamp(self.path)

    def _read(self, path: Path) -> None:
        try:
            content = json.loads(path.read_text())
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']}")
            written = content.pop("digest")
            if written != digest([json.dumps(content)]):
                raise ArgumentError(
                    f"{path} is damaged or was edited: its digest does not fit its content; move "
                    "it away"
                )
            known = dict(content["task"])
            runs = [_read_run(entry, self.task) for entry in content["runs"]]
        except ArgumentError:
            raise
        except OSError as error:
            raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise ArgumentError(
                f"{path} is not a results file of this version of boundlab ({error}): move it "
                "away, or do not resume"
            ) from error
        own = _description(self.task)
        different = [words for key, words in WORDS.items() if known.get(key) != own[key]]
        if different:
            raise ArgumentError(
                f"{path} was made with {', '.join(different)}: choose another output folder, or do "
                "not resume"
            )
        for run in runs:
            if len(run.margins) > self.task.images or run.margins.shape[1] != self.task.classes - 1:
                raise ArgumentError(
                    f"{path} is damaged: the run {run.method} at {run.radius:g} has margins of "
                    f"shape {tuple(run.margins.shape)}; move it away"
                )
            self.put(run)


def refuse_to_replace(path: Path) -> None:
    """An error if there is a file already."""
    if path.exists():
        raise ArgumentError(
            f"{path.parent} already holds results: give --resume to go on from them, or another "
            "--output"
        )


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


def _plain(margins: Tensor) -> list[list[float | str]]:
    """Numbers as numbers; what JSON has no number for as "nan", "inf" or "-inf", which float()
    reads."""
    return [
        [value if math.isfinite(value) else str(value) for value in row] for row in margins.tolist()
    ]


def _read_run(entry: dict[str, Any], task: Task) -> Run:
    values = [[float(value) for value in row] for row in entry["margins"]]
    margins = torch.tensor(values, dtype=torch.float64)
    if values:
        margins = margins.reshape(len(values), -1)
    else:
        margins = margins.reshape(0, task.classes - 1)
    return Run(str(entry["method"]), float(entry["radius"]), margins, float(entry["seconds"]))


def fingerprint(*things: Net | Tensor) -> str:
    """A digest that changes with the values of tensors, and with the graph and the parameters of a
    net."""
    return digest(part for thing in things for part in _parts(thing))


def _parts(thing: Net | Tensor) -> Iterator[Tensor | str]:
    if isinstance(thing, Net):
        yield from _parts_of_net(thing)
    else:
        yield thing


def _parts_of_net(net: Net) -> Iterator[Tensor | str]:
    for node in net.graph.nodes.values():
        yield f"{node.name} {op_name(node.op)} {node.args} {dict(node.kwargs)} {node.output}\n"
    for name, value in sorted(net.reader.parameters().items()):
        yield name
        if isinstance(value, Tensor):
            yield value
