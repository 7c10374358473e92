"""The arguments of ``boundlab supports``."""

from __future__ import annotations

from boundlab.commands.parser import Parser

QUESTIONS = {
    "--onnx-opset-versions": "the oldest and the newest opset",
    "--onnx-element-types": "types that proofs are about",
    "--onnx-operators": "ONNX operators",
    "--vnnlib-versions": "the oldest and the newest version",
    "--hidden-node-theories": "values inside of networks",
    "--multiple-input-output-theories": "inputs and outputs",
    "--multiple-network-theories": "several networks in a query",
    "--multiple-node-comparison-theories": "comparisons",
    "--arithmetic-complexity-theories": "arithmetic of assertions",
    "--optimised-disjunctive-reasoning": "whether an or is more than its alternatives",
    "--serialise-assignments": "assignments in binary files",
    "--unsat-proofs": "proofs as files",
}
"""Options of the standard, and what they ask."""


def declare(parser: Parser) -> None:
    parser.description = "Print one capability, a value on a line."
    parser.epilog = "example:\n  boundlab supports --onnx-operators"
    questions = parser.add_argument_group("one of")
    group = questions.add_mutually_exclusive_group(required=True)
    for option, help in QUESTIONS.items():
        group.add_argument(option, dest="capability", action="store_const", const=option, help=help)
