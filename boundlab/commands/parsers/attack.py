"""The arguments of ``boundlab attack``."""

from __future__ import annotations

from pathlib import Path

from boundlab.commands.arguments import add_count, add_numbers
from boundlab.commands.parser import Parser
from boundlab.commands.parsers.subject import add_machine, add_norm, add_output, add_subject
from boundlab.defaults import RESTARTS, STEPS


def declare(parser: Parser) -> None:
    parser.description = """\
Search the ball around every image of DATA for inputs of another class, and write them to
counterexamples.npz; or, if DATA is a .vnnlib file, search for an input that violates the
property."""
    parser.epilog = """\
examples:
  boundlab attack net.onnx test.npz --eps 2/255
  boundlab attack net.onnx property.vnnlib --timeout 60 --result result.txt

where nothing is found, nothing is proved: boundlab certify and boundlab verify do that"""
    add_subject(parser)
    sets = parser.add_argument_group("what may change (images)")
    add_numbers(sets, "--eps", "EPS", "radii, fractions too (default: 2/255 8/255)")
    add_norm(sets)
    how = parser.add_argument_group("how to search")
    add_count(how, "--steps", f"steps of a descent (default: {STEPS}; of properties 50)")
    add_count(
        how,
        "--restarts",
        f"descents for each image (default: {RESTARTS}; of properties as many as the time allows)",
    )
    how.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="of a property: when to stop searching (default: 8 unless --restarts is given)",
    )
    add_machine(how)
    output = parser.add_argument_group("output")
    add_output(output, "boundlab-attack", "what is found of images")
    output.add_argument(
        "--result",
        type=Path,
        metavar="FILE",
        help="of a property: where to write sat and the counterexample, or unknown",
    )
