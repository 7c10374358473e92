"""The arguments of ``boundlab recipes``."""

from __future__ import annotations

from boundlab.commands.arguments import add_json
from boundlab.commands.parser import Parser


def declare(parser: Parser) -> None:
    parser.description = """\
List the built-in recipes of boundlab train with what they were seen to reach, or show all entries
of one."""
    parser.epilog = """\
examples:
  boundlab recipes
  boundlab recipes mnist-0.3-lirpa > mine.toml"""
    what = parser.add_argument_group("which recipe")
    what.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="show what this recipe says, as a TOML file"
    )
    output = parser.add_argument_group("output")
    add_json(output, "the recipes")
