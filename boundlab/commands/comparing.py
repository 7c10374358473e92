"""``boundlab compare``: the results of two tools, or of two versions, side by side."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from boundlab.commands.compare_page import compare_page
from boundlab.commands.speaking import Json, out, say, write_json
from boundlab.commands.tool_results import Matched, Pair, contradictions, match, read_results
from boundlab.errors import ArgumentError, Contradiction
from boundlab.storage.files import write_atomically

COLUMNS = ("all", "A", "B", "both", "only A", "only B", "clash", "time A/B")
SHOWN = 3
"""Instances without a counterpart that are named."""


def compare(options: argparse.Namespace) -> None:
    """Compare two results; an error if they contradict each other."""
    a, b = read_results(options.a), read_results(options.b)
    found = match(a, b)
    if not found.pairs:
        raise ArgumentError(
            f"no instance of {options.a} is in {options.b}: networks and properties are matched by "
            f"the names of their files, such as {a[0]} and {b[0]}"
        )
    names = (str(options.a), str(options.b))
    against = contradictions(found.pairs)
    if options.html is not None:
        rows = [(name, *summary(pairs)) for name, pairs in by_set(found.pairs).items()]
        page = compare_page(names, found.pairs, (("set", *COLUMNS), *rows), remarks(found))
        write_atomically(options.html, page)
    _print(out(options), names, found, against)
    write_json(options, _document(names, found, against))
    if against:
        raise Contradiction(
            f"{len(against)} of {len(found.pairs)} instances are sat in one and unsat in the other"
        )


def by_set(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Pairs by their set; under ``all`` every one, if there are several sets."""
    found: dict[str, list[Pair]] = {}
    for one in pairs:
        found.setdefault(one.set or "(no set)", []).append(one)
    if len(found) > 1:
        found["all"] = list(pairs)
    return found


def summary(pairs: Sequence[Pair]) -> list[str]:
    """A row of the table, for :data:`COLUMNS`."""
    by_a = {one for one in pairs if one.a.is_decided}
    by_b = {one for one in pairs if one.b.is_decided}
    groups = (pairs, by_a, by_b, by_a & by_b, by_a - by_b, by_b - by_a, contradictions(pairs))
    ratios = [one.ratio for one in pairs if one.ratio is not None]
    median = ""
    if ratios:
        median = f"{statistics.median(ratios):.2f}"
    return [*(str(len(group)) for group in groups), median]


def _document(names: tuple[str, str], found: Matched, against: Sequence[Pair]) -> dict[str, Json]:
    """The table for scripts."""
    return {
        "a": names[0],
        "b": names[1],
        "contradictions": [
            {"instance": str(one.a), "a": one.a.status, "b": one.b.status} for one in against
        ],
        "sets": {
            name: dict(zip(COLUMNS, map(_number, summary(pairs)), strict=True))
            for name, pairs in by_set(found.pairs).items()
        },
        "remarks": remarks(found),
    }


def _number(text: str) -> float | None:
    return float(text) if text else None


def _print(
    console: Console, names: tuple[str, str], found: Matched, against: Sequence[Pair]
) -> None:
    if against:
        say(console, "Contradictions:")
    for one in against:
        say(console, f"  {one.a}: A says {one.a.status}, B {one.b.status}")
    for letter, name in zip("AB", names, strict=True):
        say(console, f"{letter}: {name}")
    table = Table(title_justify="left")
    table.add_column("set", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for name, pairs in by_set(found.pairs).items():
        table.add_row(name, *summary(pairs))
    console.print(table)
    for line in remarks(found):
        say(console, line)


def remarks(found: Matched) -> list[str]:
    """What there is to say of instances that are not in both, or in sets of other names."""
    lines = []
    for what, results in (
        ("only in A", found.only_a),
        ("only in B", found.only_b),
        ("not matched, since several of the other fit equally well", found.ambiguous),
    ):
        if results:
            some = "; ".join(str(one) for one in results[:SHOWN])
            more = ""
            if len(results) > SHOWN:
                more = "; ..."
            lines.append(f"{len(results)} {what}: {some}{more}")
    loose = [one for one in found.pairs if one.is_loose]
    if loose:
        lines.append(
            f"{len(loose)} matched by the last parts of their paths, though their sets have other "
            f"names: {loose[0].a} and {loose[0].b}"
        )
    return lines
