"""``boundlab supports``: what can be verified, in the form of the solver command line of VNN-LIB 2.

The words are those of the standard (VNN-LIB 2.0, chapters on theories and on the solver's command
line), a value on a line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from boundlab.onnx import rows as _rows  # fills the table
from boundlab.onnx.reading import import_onnx
from boundlab.onnx.table import ROWS


def _fixed(*lines: str) -> Callable[[], list[str]]:
    return lambda: list(lines)


def _opsets() -> list[str]:
    return ["1", str(import_onnx().defs.onnx_opset_version())]


ANSWERS: Mapping[str, Callable[[], list[str]]] = {
    "--onnx-opset-versions": _opsets,
    # how a network rounds is measured and not proved, so no floating type is claimed
    "--onnx-element-types": _fixed("real"),
    "--onnx-operators": lambda: sorted(ROWS),
    "--vnnlib-versions": _fixed("1.0", "2.0"),
    "--hidden-node-theories": _fixed("NH"),
    "--multiple-input-output-theories": _fixed("SIO", "MIO"),
    "--multiple-network-theories": _fixed("SNET", "MENET", "MINET", "MNET"),
    "--multiple-node-comparison-theories": _fixed("SNC", "MNC"),
    "--arithmetic-complexity-theories": _fixed("BND", "OUTC", "LIN"),
    "--optimised-disjunctive-reasoning": _fixed("false"),
    "--serialise-assignments": _fixed("false"),
    "--unsat-proofs": _fixed("false"),
}
"""To each question of ``parsers/supports.py``, the lines of the answer."""


def supports(options: argparse.Namespace) -> None:
    """Print one capability."""
    print(*ANSWERS[options.capability](), sep="\n")


del _rows
