"""The arguments of ``boundlab verify``."""

from __future__ import annotations

from pathlib import Path

from boundlab.commands.arguments import add_arithmetic, add_count, add_json, add_ray, add_resume
from boundlab.commands.parser import Parser
from boundlab.defaults import TIMEOUT


def declare(parser: Parser) -> None:
    parser.description = """\
Print unsat (the property holds), sat (it is violated; the counterexample goes to the file of
--result), unknown or timeout, and what was done. With --instances: the same for a list of networks
and properties, each in a process of its own."""
    parser.epilog = """\
examples:
  boundlab verify net.onnx property.vnnlib --timeout 60 --result out.txt
  boundlab verify --instances instances.csv --output results --jobs 2
  boundlab verify query.vnnlib --network f=a.onnx --network g=b.onnx"""
    _one(parser)
    _list(parser)
    add_arithmetic(parser.add_argument_group("proofs"))
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help=f"counted from the start of the process (default: {TIMEOUT:g}); for a list, instead "
        "of the list's own",
    )
    add_count(limits, "--threads", "threads of a process (default: one, or all if faster)")
    limits.add_argument(
        "--memory", metavar="SIZE", help='memory that a process may take, such as "4 GiB"'
    )


def _one(parser: Parser) -> None:
    """A network and a property, and where the answer goes."""
    group = parser.add_argument_group("one property")
    group.add_argument(
        "network", type=Path, nargs="?", metavar="NET", help="an ONNX file (.onnx, .onnx.gz)"
    )
    group.add_argument(
        "property",
        type=Path,
        nargs="?",
        metavar="PROPERTY",
        help="a VNN-LIB file (.vnnlib, .vnnlib.gz)",
    )
    group.add_argument(
        "--network",
        dest="networks",
        action="append",
        metavar="NAME=FILE",
        help="as VNN-LIB 2 has it: the VNN-LIB file comes first and alone, its networks follow by "
        "their names; once for each network that is not equal to another",
    )
    group.add_argument(
        "--result",
        type=Path,
        metavar="FILE",
        help="write the answer as the competition (VNN-COMP) has it",
    )
    add_json(group, "status, seconds, domains, bound, stage and error")


def _list(parser: Parser) -> None:
    group = parser.add_argument_group("a list of properties")
    group.add_argument(
        "--instances",
        type=Path,
        metavar="FILE",
        help="a list (CSV): network, property and seconds on each line",
    )
    group.add_argument(
        "--output", type=Path, metavar="DIR", help="folder for the results of a list"
    )
    add_resume(group)
    add_count(
        group, "--jobs", "processes at once for a list (default: 1; with --ray one for each CPU)"
    )
    add_ray(group)
