"""The command line itself: its version, its help, wrong usage, and the table of operators."""

from __future__ import annotations

import subprocess
import sys

import pytest

import boundlab as bl
from boundlab.cli import main
from boundlab.commands.operators import KINDS, supported
from boundlab.onnx.table import ROWS
from boundlab.rules.registry import COMPOSITIONS, RULES
from tests.helpers.commands import run


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ops") == 0
    assert "aten.relu" in capsys.readouterr().out
    assert run("ops", "--markdown") == 0
    text = capsys.readouterr().out
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(supported())
    assert len(rows) > 100
    assert "| `aten.tanh` | elementwise | `boundlab.rules.elementwise` |" in rows
    assert any(row.startswith("| `aten.lstm` ") for row in rows)
    assert all(op.kind in KINDS for op in supported())
    assert len({op.name for op in supported()}) <= len(RULES) + len(COMPOSITIONS)


def test_onnx_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ops", "--onnx") == 0
    assert "ConvTranspose" in capsys.readouterr().out
    assert run("ops", "--onnx", "--markdown") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == sum(map(len, ROWS.values())) > len(ROWS) > 100
    gemm = "a, b, [c] | alpha, beta, transA, transB | `boundlab.onnx.rows.linear` |"
    assert f"| `Gemm` | 1 | {gemm}" in rows
    assert sum(row.startswith("| `Softmax` |") for row in rows) == len(ROWS["Softmax"]) == 2
    assert any(row.startswith("| `Reshape` | 1 | x, shape\\* |") for row in rows)
    assert any(row.startswith("| `Concat` | 1 | values... |") for row in rows)


def test_version_and_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "boundlab", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == bl.__version__


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["frobnicate"],
        ["demo", "--radii", "abc"],
        ["certify"],
        ["certify", "a:b", "c.npz", "--shape", "0,1"],
        ["ops", "x"],
    ],
)
def test_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "usage: boundlab" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "command", "message"),
    [
        (
            "train mnist-0.1-ibp --files a --output b --optimizer adam",
            "train",
            "unrecognized arguments: --optimizer adam. Did you mean '--optimiser'?",
        ),
        ("certify a:b c.npz --epsilon=1", "certify", "--epsilon=1. Did you mean '--eps'?"),
        ("evaluate a --files b --eps 0.1 0.2", "evaluate", "0.2. --eps takes one value."),
        ("evaluate a --files b --eps 0.1,0.2", "evaluate", "'0.1,0.2' is not one number"),
        ("evaluate a --files b --methods CRWN", "evaluate", "Did you mean 'crown'?"),
        ("ops x", "ops", "unrecognized arguments: x."),
        ("certify a:b c.npz --norm 3", "certify", "norm must be one of 'inf', '2', '1', not '3'"),
        ("verfy a b", "", "invalid choice: 'verfy' (choose from"),
        ("verfy a b", "", "Did you mean 'verify'?"),
        ("--quiet certify a:b c.npz", "", "unrecognized arguments: --quiet."),
    ],
)
def test_wrong_usage_is_of_the_command(
    line: str, command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    name = f"boundlab {command}".strip()
    assert said.startswith(f"usage: {name} ")
    assert said.splitlines()[-1].startswith(f"{name}: error: ")
    assert message in said.splitlines()[-1]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--help"], ["demo", "--help"], ["certify", "--help"], ["ops", "--help"]):
        assert main(argv) == 0
        assert "usage: boundlab" in capsys.readouterr().out
