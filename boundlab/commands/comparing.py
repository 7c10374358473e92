"""``boundlab compare``: the results of two tools, or of two versions, side by side."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from boundlab.commands.arguments import Commands
from boundlab.commands.compare_page import compare_page
from boundlab.commands.tool_results import Matched, Pair, contradictions, match, read_results
from boundlab.errors import ArgumentError, Contradiction
from boundlab.storage.files import write_atomically

COLUMNS = ("all", "A", "B", "both", "only A", "only B", "clash", "time A/B")
SHOWN = 3
"""Instances without a counterpart that are named."""


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "compare",
        help="two results of boundlab verify --instances, or of another tool, side by side",
        description=(
            "Prints contradictions (sat by one, unsat by the other), then for each set how many "
            "instances each decided. Ends with code 1 if there are contradictions. Instances are "
            "the same if their files have the same names; of several such, the one with which "
            "most last parts of the paths agree."
        ),
    )
    parser.set_defaults(command=_compare)
    for name, metavar in (("a", "A"), ("b", "B")):
        help = "a folder with results.csv, or a table: ours, the competition's, or with a header"
        parser.add_argument(name, type=Path, metavar=metavar, help=help)
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page with a plot of the times"
    )


def _compare(options: argparse.Namespace) -> None:
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
    _print(names, found, against)
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


def _print(names: tuple[str, str], found: Matched, against: Sequence[Pair]) -> None:
    console = Console()
    say = lambda text: console.print(text, soft_wrap=True, markup=False, highlight=False)
    if against:
        say("Contradictions:")
    for one in against:
        say(f"  {one.a}: A says {one.a.status}, B {one.b.status}")
    for letter, name in zip("AB", names, strict=True):
        say(f"{letter}: {name}")
    table = Table(title_justify="left")
    table.add_column("set", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for name, pairs in by_set(found.pairs).items():
        table.add_row(name, *summary(pairs))
    console.print(table)
    for line in remarks(found):
        say(line)


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
