"""The arguments of ``boundlab words``."""

from __future__ import annotations

from boundlab.commands.arguments import add_device, add_folder, add_method, add_threads
from boundlab.commands.parser import Parser

METHODS = ("ibp", "forward", "forward+backward", "crown-ibp", "crown")


def declare(parser: Parser) -> None:
    parser.description = """\
Show which words of a sentence may be replaced by which, and for how many replacements at once it is
proved that the class stays."""
    parser.epilog = """\
example:
  boundlab words "a lovely film" --model runs/c --files data/sst"""
    what = parser.add_argument_group("sentence and model")
    what.add_argument("sentence", metavar="SENTENCE", help="a sentence, in quotes")
    add_folder(what, "--model", "the output folder of boundlab train sst-...")
    add_folder(what, "--files", "where the treebank and the neighbours are")
    what.add_argument(
        "--budgets",
        type=int,
        nargs="+",
        default=[1, 2, 3, 4, 5, 6],
        metavar="N",
        help="replaced words (default: 1 to 6)",
    )
    how = parser.add_argument_group("how")
    add_method(how, METHODS, "crown-ibp")
    add_threads(how)
    add_device(how, "cpu")
