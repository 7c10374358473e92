"""The arguments of ``boundlab demo``."""

from __future__ import annotations

from pathlib import Path

from boundlab.commands.arguments import add_count, add_json, add_numbers
from boundlab.commands.parser import Parser
from boundlab.commands.parsers.certify import add_certifying


def declare(parser: Parser) -> None:
    parser.description = """\
Certify digits (MNIST test images) with the small convolutional network that ships with boundlab,
print how many are proved, and write a report."""
    parser.epilog = """\
examples:
  boundlab demo
  boundlab demo --images 100 --radii 0.1 0.2 --methods ibp crown"""
    what = parser.add_argument_group("what to certify")
    add_count(what, "--images", "how many of the 100 digits", 30)
    add_numbers(what, "--radii", "EPS", "radii in the maximum norm (default: 0.05 0.1 0.15)")
    add_certifying(what)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        type=Path,
        default=Path("boundlab-report"),
        metavar="DIR",
        help="folder for the report (default: boundlab-report)",
    )
    add_json(output)
