"""Results of a tool, ours or another: a table (CSV) with a line for each instance, and which lines
of two tables are about the same instance.

Three forms are read: ``results.csv`` of ``boundlab verify``; the competition's, without a header:
category, network, property, seconds of preparation, answer, seconds; and any with a header that
names the columns.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from boundlab.commands.benchmark import RESULTS
from boundlab.commands.competition import DECIDED, ERROR, SAT, TIMEOUT, UNKNOWN, UNSAT, Instance
from boundlab.errors import ArgumentError

COLUMNS = {
    "network": ("onnx", "network", "net", "model"),
    "property": ("vnnlib", "property", "prop", "spec"),
    "answer": ("status", "result", "verdict", "answer"),
    "seconds": ("seconds", "time", "run_time", "runtime"),
    "set": ("set", "category", "benchmark"),
}
"""What the columns of a header may be called."""
COMPETITION = ("set", "network", "property", "preparation", "answer", "seconds")
"""The columns of the competition's files."""
ANSWERS = {
    UNSAT: ("unsat", "holds", "verified"),
    SAT: ("sat", "violated", "falsified"),
    TIMEOUT: ("timeout", "timed-out", "timed_out", "run_instance_timeout"),
    UNKNOWN: ("unknown", "ambiguous", "unsupported", ""),
    ERROR: ("error", "no_result_in_file", "memout", "out of memory"),
}
"""Words for the five answers."""
_WORDS = {word: answer for answer, words in ANSWERS.items() for word in words}
Parts = tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What a tool says of an instance. status: the competition's word; seconds: None if they are
    not given; set: nothing if it is not known."""

    onnx: str
    vnnlib: str
    status: str
    seconds: float | None
    set: str

    @property
    def is_decided(self) -> bool:
        return self.status in DECIDED

    @property
    def paths(self) -> tuple[Parts, Parts]:
        """The parts of both paths, the set in front if the table names it beside them."""
        return self._parts(self.onnx), self._parts(self.vnnlib)

    def _parts(self, path: str) -> Parts:
        words = path.removesuffix(".gz").replace("\\", "/").split("/")
        parts = tuple(word for word in words if word not in ("", "."))
        if self.set and self.set not in parts:
            return (self.set, *parts)
        return parts

    def __str__(self) -> str:
        return f"{self.onnx}, {self.vnnlib}"


def read_results(path: Path) -> tuple[Result, ...]:
    """The results in a file, or in the file ``results.csv`` of a folder."""
    if path.is_dir():
        path = path / RESULTS
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if any(word.strip() for word in row)]
    except OSError as error:
        raise ArgumentError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ArgumentError(f"{path} is no table of results: {error}") from None
    if not rows:
        raise ArgumentError(f"{path} is empty")
    columns = _header(rows[0], path)
    if columns is None:
        columns = {name: place for place, name in enumerate(COMPETITION)}
        numbered = list(enumerate(rows, 1))
    else:
        numbered = list(enumerate(rows[1:], 2))
    found: dict[tuple[str, str], Result] = {}
    for number, row in numbered:
        try:
            _add(found, _result(row, columns))
        except ArgumentError as error:
            raise ArgumentError(f"{path}, line {number}: {error}") from None
    if not found:
        raise ArgumentError(f"{path} holds no results yet")
    return tuple(found.values())


def _header(row: Sequence[str], path: Path) -> dict[str, int] | None:
    """Where the columns are; None for the competition's form, which has no header."""
    words = [word.strip().lower() for word in row]
    found = {}
    for name, known in COLUMNS.items():
        place = next((words.index(word) for word in known if word in words), None)
        if place is not None:
            found[name] = place
    if all(name in found for name in ("network", "property", "answer")):
        return found
    if len(row) >= len(COMPETITION) and words[4] in _WORDS:
        return None
    raise ArgumentError(
        f"{path} is no table of results: its first line neither names the columns onnx, vnnlib and "
        "result, nor is one of the competition's (category, onnx, vnnlib, seconds, result, seconds)"
    )


def _result(row: Sequence[str], columns: Mapping[str, int]) -> Result:
    def cell(name: str) -> str:
        place = columns.get(name)
        if place is None:
            return ""
        if place >= len(row):
            raise ArgumentError(f"it has {len(row)} columns, and none for the {name}")
        return row[place].strip()

    onnx, vnnlib, text = cell("network"), cell("property"), cell("seconds")
    if not onnx or not vnnlib:
        raise ArgumentError("it names no network or no property")
    try:
        seconds = float(text) if text else None
    except ValueError:
        raise ArgumentError(f"{text!r} is no number of seconds") from None
    of_set = cell("set") or Instance(onnx, vnnlib, 1.0).set
    return Result(onnx, vnnlib, _answer(cell("answer")), seconds, of_set)


def _answer(word: str) -> str:
    word = word.lower()
    if word.startswith(("error", "prepare_instance")):
        return ERROR
    if word not in _WORDS:
        raise ArgumentError(f"{word[:60]!r} is no answer; {', '.join(ANSWERS)} are")
    return _WORDS[word]


def _add(found: dict[tuple[str, str], Result], result: Result) -> None:
    """Note a result. Of two lines about one instance that which decides it counts."""
    key = (result.onnx, result.vnnlib)
    before = found.get(key)
    if before is None or not before.is_decided:
        found[key] = result
    elif result.is_decided and result.status != before.status:
        raise ArgumentError(f"{result} is {result.status}, and {before.status} in a line before")


# -- the same instance -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """What two tools say of one instance."""

    a: Result
    b: Result

    @property
    def set(self) -> str:
        return self.a.set or self.b.set

    @property
    def is_contradiction(self) -> bool:
        return self.a.is_decided and self.b.is_decided and self.a.status != self.b.status

    @property
    def ratio(self) -> float | None:
        """Seconds of a over those of b, where both decide and agree."""
        if not (self.a.is_decided and self.b.is_decided) or self.is_contradiction:
            return None
        if not self.a.seconds or not self.b.seconds:
            return None
        return self.a.seconds / self.b.seconds

    @property
    def is_loose(self) -> bool:
        """Whether their sets have other names."""
        return bool(self.a.set and self.b.set) and self.a.set != self.b.set


def contradictions(pairs: Sequence[Pair]) -> list[Pair]:
    return [one for one in pairs if one.is_contradiction]


@dataclass(frozen=True)
class Matched:
    """Instances of both tables; those of which the other has none; and those of which it has
    several that fit equally well."""

    pairs: tuple[Pair, ...]
    only_a: tuple[Result, ...]
    only_b: tuple[Result, ...]
    ambiguous: tuple[Result, ...]


def match(a: Sequence[Result], b: Sequence[Result]) -> Matched:
    """The results that are about the same instance.

    Both file names must be the same, packed or not. Of several such, the one counts with which most
    last parts of both paths agree, and only if it is the best one alone, from both sides.
    """
    of_a, of_b = _by_names(a), _by_names(b)
    pairs: list[Pair] = []
    lone: tuple[list[Result], list[Result]] = ([], [])
    ambiguous: list[Result] = []
    for names in dict.fromkeys([*of_a, *of_b]):
        left, right = of_a.get(names, []), of_b.get(names, [])
        best = {one: _best(one, right) for one in left}
        back = {one: _best(one, left) for one in right}
        taken: set[Result] = set()
        for one, others in best.items():
            if len(others) == 1 and back[others[0]] == [one]:
                pairs.append(Pair(one, others[0]))
                taken |= {one, others[0]}
        for side, found in zip(lone, (best, back), strict=True):
            for one, others in found.items():
                if one in taken:
                    continue
                if any(other not in taken for other in others):
                    ambiguous.append(one)
                else:
                    side.append(one)
    return Matched(tuple(pairs), tuple(lone[0]), tuple(lone[1]), tuple(ambiguous))


def _by_names(results: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    found: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        network, prop = one.paths
        found.setdefault((network[-1], prop[-1]), []).append(one)
    return found


def _best(one: Result, others: Sequence[Result]) -> list[Result]:
    """Those whose paths agree with most last parts."""
    scores = [_score(one, other) for other in others]
    return [other for other, score in zip(others, scores, strict=True) if score == max(scores)]


def _score(one: Result, other: Result) -> tuple[int, bool]:
    both = list(zip(one.paths, other.paths, strict=True))
    return sum(_common(a, b) for a, b in both), all(a == b for a, b in both)


def _common(a: Parts, b: Parts) -> int:
    """How many last parts are the same."""
    same = 0
    for one, other in zip(reversed(a), reversed(b), strict=False):
        if one != other:
            break
        same += 1
    return same
