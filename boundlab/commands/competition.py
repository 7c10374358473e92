"""The files of the verification competition (VNN-COMP): what a verifier answers, and the list of
instances that it is asked about.

A property file describes the UNSAFE set. ``sat``: something satisfies it, so the property is
violated; ``unsat``: nothing does, so it holds.
"""

from __future__ import annotations

import ast
import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from boundlab.errors import ArgumentError

UNSAT, SAT, UNKNOWN, TIMEOUT, ERROR = "unsat", "sat", "unknown", "timeout", "error"
WORDS = (UNSAT, SAT, UNKNOWN, TIMEOUT, ERROR)
DECIDED = (UNSAT, SAT)
ENTRY = re.compile(r"\(\s*([XY])_(\d+)\s+([^\s()]+)\s*\)")


def counterexample_text(x: Tensor, y: Tensor) -> str:
    """An input and the output there, of any shapes, as ``((X_0 v) ... (Y_0 v) ...)``, an element on
    a line. The digits are those of double precision, so that reading them gives the same numbers.
    """
    lines = [
        f"({name}_{index} {value!r})"
        for name, values in (("X", x), ("Y", y))
        for index, value in enumerate(values.detach().double().flatten().tolist())
    ]
    return "(" + "\n ".join(lines) + ")\n"


def read_counterexample(text: str) -> tuple[Tensor, Tensor]:
    """The flat input and output that :func:`counterexample_text` wrote, in double precision."""
    found: dict[str, dict[int, float]] = {"X": {}, "Y": {}}
    for name, index, value in ENTRY.findall(text):
        try:
            found[name][int(index)] = float(value)
        except ValueError:
            raise ArgumentError(f"{name}_{index} is {value!r}, which is no number") from None
    for name, values in found.items():
        if not values or sorted(values) != list(range(len(values))):
            raise ArgumentError(f"the elements {name}_0, {name}_1, ... are not all there")
    x, y = ([values[k] for k in range(len(values))] for values in found.values())
    return torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)


def result_text(word: str, counterexample: str = "") -> str:
    """A result file: the answer, and behind ``sat`` the counterexample."""
    return f"{word}\n{counterexample}"


# -- instances -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instance:
    """A question of a list: files as the list names them, and seconds."""

    onnx: str
    vnnlib: str
    timeout: float

    @property
    def networks(self) -> dict[str, str]:
        """The files of its networks by their names in the property (:func:`named_networks`)."""
        return named_networks(self.onnx)

    @property
    def name(self) -> str:
        """Of a file about it: the names of all files."""
        return "_".join(_stem(one) for one in (*self.networks.values(), self.vnnlib))

    @property
    def set(self) -> str:
        """The set that it is of: the folder that holds the folder ``onnx``, ``acasxu`` of a path
        such as ``acasxu/onnx/net.onnx``; nothing if the list does not say."""
        first = next(iter(self.networks.values()))
        above = [part for part in Path(first).parts[:-1] if part.strip("./\\")]
        place = above.index("onnx") if "onnx" in above else len(above) - 1
        return above[place - 1] if place > 0 else ""


def named_networks(field: str) -> dict[str, str]:
    """Networks of a field of a list: one file, without a name; or, where a property is about
    several, the competition's ``[('f', 'onnx/a.onnx'), ('g', 'onnx/b.onnx')]``."""
    if not field.lstrip().startswith("["):
        return {"": field}
    try:
        pairs = ast.literal_eval(field.strip())
        found = {str(name): str(path) for name, path in pairs}
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return {"": field}
    if not found or len(found) != len(pairs):
        return {"": field}
    return found


def read_instances(path: Path, timeout: float | None = None) -> tuple[Instance, ...]:
    """The instances of a list without a header, a line each: network, property, seconds. timeout:
    seconds for all of them, instead of the list's own; a line without any needs it."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if any(word.strip() for word in row)]
    except OSError as error:
        raise ArgumentError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ArgumentError(f"{path} is no list of instances: {error}") from None
    found = [_instance(row, number, path, timeout) for number, row in enumerate(rows, 1)]
    if not found:
        raise ArgumentError(f"{path} names no instances")
    return tuple(dict.fromkeys(found))


def _instance(row: Sequence[str], number: int, path: Path, timeout: float | None) -> Instance:
    words = [word.strip() for word in row]
    if timeout is None and len(words) == 3:
        try:
            timeout = float(words[2])
        except ValueError:
            timeout = math.nan
    given = timeout is not None and 0 < timeout < math.inf
    if len(words) not in (2, 3) or not all(words[:2]) or not given or timeout is None:
        raise ArgumentError(
            f"line {number} of {path} is no instance: network, property and seconds are expected, "
            f"not {','.join(row)[:100]!r}"
        )
    return Instance(words[0], words[1], timeout)


def find_file(folder: Path, name: str) -> Path:
    """A file of an instance, relative to the folder of its list; the packed one if only that is
    there."""
    path = folder / name
    packed = path.with_name(f"{path.name}.gz")
    if not path.exists() and packed.exists():
        return packed
    if not path.is_file():
        raise ArgumentError(f"there is no file {name}, packed (.gz) or not")
    return path


def _stem(name: str) -> str:
    return Path(name.removesuffix(".gz")).stem
