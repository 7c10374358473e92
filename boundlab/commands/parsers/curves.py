"""The arguments of ``boundlab curves``."""

from __future__ import annotations

from pathlib import Path

from boundlab.commands.parser import Parser


def declare(parser: Parser) -> None:
    parser.description = """\
Compare training runs: a table of how far they came, and curves with seeds of one recipe as
bands."""
    parser.epilog = """\
example:
  boundlab curves runs/a runs/b --plot curves.svg"""
    what = parser.add_argument_group("runs")
    what.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="output folders of boundlab train, or of boundlab.fit",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the curves into this file, .svg, .png or .pdf (needs the extra plot)",
    )
