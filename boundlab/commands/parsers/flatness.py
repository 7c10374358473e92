"""The arguments of ``boundlab flatness``."""

from __future__ import annotations

from pathlib import Path

from boundlab.commands.arguments import (
    add_checkpoint,
    add_count,
    add_device,
    add_json,
    add_methods,
    add_threads,
    number,
)
from boundlab.commands.parser import Parser
from boundlab.commands.parsers.runs import add_files, add_model

METHODS = ("ibp", "forward", "crown-ibp", "crown", "forward+backward")


def declare(parser: Parser) -> None:
    parser.description = """\
Bound how far the mean loss over training images can rise when every weight moves inside a ball,
and attack the weights for comparison."""
    parser.epilog = """\
examples:
  boundlab flatness runs/b --files data/mnist
  boundlab flatness runs/b --files data/mnist --eps 0.05 --methods crown-ibp crown"""
    what = parser.add_argument_group("model and data")
    add_checkpoint(what)
    add_files(what, "the folder with the files of the data set, if boundlab reads it by name")
    add_model(what)
    add_count(what, "--limit", "only the first N training images")
    sets = parser.add_argument_group("what may change")
    sets.add_argument(
        "--eps",
        type=number,
        default=0.01,
        metavar="EPS",
        help="radius as a share of the norm of each weight (default: 0.01)",
    )
    sets.add_argument("--absolute", action="store_true", help="eps is the radius itself")
    how = parser.add_argument_group("how")
    add_methods(how, METHODS, ("crown-ibp",), "of the certified rise")
    add_count(how, "--steps", "steps of the attack on the weights", 20)
    add_threads(how)
    add_device(how, "cpu")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--surface",
        type=Path,
        metavar="FILE",
        help="draw the loss around the weights (needs the extra plot)",
    )
    add_json(output)
