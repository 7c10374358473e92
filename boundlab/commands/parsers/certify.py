"""The arguments of ``boundlab certify``."""

from __future__ import annotations

from boundlab.commands.arguments import (
    Arguments,
    add_arithmetic,
    add_count,
    add_numbers,
    add_timeout,
    words,
)
from boundlab.commands.parser import Parser
from boundlab.commands.parsers.subject import add_machine, add_norm, add_output, add_subject
from boundlab.defaults import COMPLETE, METHODS, RESTARTS, STEPS


def declare(parser: Parser) -> None:
    parser.description = """\
Bound the margins of every image of DATA by every method at every radius, attack the images that
none proves, verify what is left if complete is one of the methods, print how many are proved,
falsified and open, and write a report (index.html)."""
    parser.epilog = """\
examples:
  boundlab certify net.onnx digits.npz --eps 2/255 8/255
  boundlab certify mypackage.models:small_cnn test.npz --weights best.pt --mean 0.49 --std 0.25
  boundlab certify net.onnx digits.npz --norm l2 --eps 0.5 --methods crown complete --timeout 30
  boundlab certify net.onnx digits.npz --json | jq .together

format of the results: docs/results-format.md"""
    add_subject(parser)
    sets = parser.add_argument_group("what may change")
    add_numbers(sets, "--eps", "EPS", "radii, fractions too (default: 2/255 8/255)")
    add_norm(sets)
    how = parser.add_argument_group("how to certify")
    add_certifying(how)
    add_count(how, "--steps", "steps of the attack", STEPS)
    add_count(how, "--restarts", "random starts of the attack", RESTARTS)
    how.add_argument(
        "--no-attack",
        dest="attack",
        action="store_false",
        help="do not attack images that no method proves",
    )
    add_arithmetic(how)
    add_machine(how)
    output = parser.add_argument_group("output")
    add_output(output, "boundlab-report", "results, tables and report")


def add_certifying(group: Arguments) -> None:
    """The methods, and the time of the one that takes some."""
    group.add_argument(
        "--methods",
        nargs="+",
        action="extend",
        type=words,
        metavar="METHOD",
        help=f"{COMPLETE} verifies images that the others leave open (default: "
        f"{' '.join(METHODS)})",
    )
    add_timeout(group)
