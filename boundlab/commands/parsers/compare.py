"""The arguments of ``boundlab compare``."""

from __future__ import annotations

from pathlib import Path

from boundlab.commands.arguments import add_json
from boundlab.commands.parser import Parser


def declare(parser: Parser) -> None:
    parser.description = """\
Print contradictions (sat by one, unsat by the other), then for each set how many instances each
decided. Ends with code 1 if there are contradictions. Instances are the same if their files have
the same names; of several such, the one with which most last parts of the paths agree."""
    parser.epilog = """\
examples:
  boundlab compare results other-tool.csv
  boundlab compare before after --html times.html"""
    what = parser.add_argument_group("results")
    for name, metavar in (("a", "A"), ("b", "B")):
        what.add_argument(
            name,
            type=Path,
            metavar=metavar,
            help="a folder with results.csv, or a table: ours, the competition's, or with a header",
        )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page with a plot of the times"
    )
    add_json(output)
