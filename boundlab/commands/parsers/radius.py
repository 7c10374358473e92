"""The arguments of ``boundlab radius``."""

from __future__ import annotations

from boundlab.commands.arguments import add_count, add_method, number
from boundlab.commands.parser import Parser
from boundlab.commands.parsers.subject import add_machine, add_norm, add_output, add_subject
from boundlab.defaults import MOST, RESTARTS, STEPS, TOLERANCE
from boundlab.methods.method import METHODS


def declare(parser: Parser) -> None:
    parser.description = """\
Search by bisection for the largest radius at which each image of DATA is proved, and the smallest
at which a counterexample is found."""
    parser.epilog = """\
examples:
  boundlab radius net.onnx test.npz
  boundlab radius net.onnx test.npz --method crown --norm l2 --most 10 --limit 100"""
    add_subject(parser)
    sets = parser.add_argument_group("what may change")
    add_norm(sets)
    sets.add_argument(
        "--most",
        type=number,
        default=MOST,
        metavar="EPS",
        help=f"largest radius that is asked (default: {MOST:g})",
    )
    how = parser.add_argument_group("how to search")
    add_method(how, METHODS, "crown")
    how.add_argument(
        "--tolerance",
        type=number,
        default=TOLERANCE,
        metavar="SHARE",
        help=f"how close, as a share, a search comes (default: {TOLERANCE:g})",
    )
    add_count(how, "--steps", "steps of the attack", STEPS)
    add_count(how, "--restarts", "random starts of the attack, 0 for none", RESTARTS)
    add_machine(how)
    output = parser.add_argument_group("output")
    add_output(output, "boundlab-radius", "results, tables and report")
