"""``boundlab supports``: the capabilities that VNN-LIB 2 asks for, in its words."""

from __future__ import annotations

import pytest

from boundlab.commands.parsers.supports import QUESTIONS
from boundlab.onnx.table import ROWS
from tests.helpers.commands import run

KNOWN = {
    "--hidden-node-theories": {"NH", "H"},
    "--multiple-input-output-theories": {"SIO", "MIO"},
    "--multiple-network-theories": {"SNET", "MENET", "MINET", "MNET"},
    "--multiple-node-comparison-theories": {"SNC", "MNC"},
    "--arithmetic-complexity-theories": {"BND", "OUTC", "LIN", "POLY"},
    "--optimised-disjunctive-reasoning": {"true", "false"},
    "--serialise-assignments": {"true", "false"},
    "--unsat-proofs": {"true", "false"},
    "--onnx-element-types": {"real"},
}
"""The words that the standard has for answers."""


@pytest.mark.parametrize("option", QUESTIONS)
def test_capabilities(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("supports", option) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(lines)
    if option in KNOWN:
        assert set(lines) <= KNOWN[option]
    elif option == "--onnx-operators":
        assert lines == sorted(ROWS) and "Conv" in lines
    else:
        low, high = (float(line) for line in lines)
        assert low <= high


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("supports") == 2
    assert run("supports", "--onnx-operators", "--unsat-proofs") == 2
    capsys.readouterr()
    assert run("--name") == 0 and capsys.readouterr().out == "boundlab\n"
