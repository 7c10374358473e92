"""``boundlab supports``: what can be verified, in the form of the solver command line of VNN-LIB 2.

The words are those of the standard (VNN-LIB 2.0, chapters on theories and on the solver's command
line), a value on a line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from boundlab.commands.arguments import Commands
from boundlab.onnx import rows as _rows  # fills the table
from boundlab.onnx.reading import import_onnx
from boundlab.onnx.table import ROWS


@dataclass(frozen=True)
class Capability:
    """A question of the standard. option: what it is asked by; help: what it asks; lines: the
    answer."""

    option: str
    help: str
    lines: Callable[[], list[str]]


def _fixed(*lines: str) -> Callable[[], list[str]]:
    return lambda: list(lines)


def _opsets() -> list[str]:
    return ["1", str(import_onnx().defs.onnx_opset_version())]


CAPABILITIES = (
    Capability("--onnx-opset-versions", "the oldest and the newest opset", _opsets),
    # how a network rounds is measured and not proved, so no floating type is claimed
    Capability("--onnx-element-types", "types that proofs are about", _fixed("real")),
    Capability("--onnx-operators", "ONNX operators", lambda: sorted(ROWS)),
    Capability("--vnnlib-versions", "the oldest and the newest version", _fixed("1.0", "2.0")),
    Capability("--hidden-node-theories", "values inside of networks", _fixed("NH")),
    Capability("--multiple-input-output-theories", "inputs and outputs", _fixed("SIO", "MIO")),
    Capability(
        "--multiple-network-theories",
        "several networks in a query",
        _fixed("SNET", "MENET", "MINET", "MNET"),
    ),
    Capability("--multiple-node-comparison-theories", "comparisons", _fixed("SNC", "MNC")),
    Capability(
        "--arithmetic-complexity-theories", "arithmetic of assertions", _fixed("BND", "OUTC", "LIN")
    ),
    Capability(
        "--optimised-disjunctive-reasoning",
        "whether an or is more than its alternatives",
        _fixed("false"),
    ),
    Capability("--serialise-assignments", "assignments in binary files", _fixed("false")),
    Capability("--unsat-proofs", "proofs as files", _fixed("false")),
)


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "supports",
        help="what verify takes, as VNN-LIB 2 asks for it",
        description="Prints one capability, a value on a line.",
    )
    parser.set_defaults(command=_supports)
    group = parser.add_mutually_exclusive_group(required=True)
    for one in CAPABILITIES:
        group.add_argument(
            one.option, dest="capability", action="store_const", const=one, help=one.help
        )


def _supports(options: argparse.Namespace) -> None:
    print(*options.capability.lines(), sep="\n")


del _rows
