"""The command line itself: its version, its help, wrong usage, and the table of operators."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import boundlab as bl
from boundlab.cli import main
from boundlab.commands.operators import KINDS, supported
from boundlab.commands.table import COMMANDS, parsers
from boundlab.onnx.table import ROWS
from boundlab.rules.registry import COMPOSITIONS, RULES
from tests.helpers.commands import run

NO_TABLE = ("train", "curves", "export", "words", "supports", "completion")
"""Commands without a table that a script could read."""


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
        ("ops --jsn", "ops", "unrecognized arguments: --jsn. Did you mean '--json'?"),
        ("radius a:b c.npz --method CRWN", "radius", "Did you mean 'crown'?"),
        ("words x --model a --files b --method cron", "words", "Did you mean 'crown'?"),
        ("completion tcsh", "completion", "invalid choice: 'tcsh' (choose from"),
        ("certify a:b c.npz --json {there}", "certify", "which is not replaced: give --json last"),
        ("certify a:b c.npz --norm 3", "certify", "norm must be one of 'inf', '2', '1', not '3'"),
        ("verfy a b", "", "invalid choice: 'verfy' (choose from"),
        ("verfy a b", "", "Did you mean 'verify'?"),
        ("--quiet certify a:b c.npz", "", "unrecognized arguments: --quiet."),
    ],
)
def test_wrong_usage_is_of_the_command(
    line: str, command: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "net.onnx"
    there.touch()
    assert main(line.replace("{there}", str(there)).split()) == 2
    said = capsys.readouterr().err
    name = f"boundlab {command}".strip()
    assert said.startswith(f"usage: {name} ")
    assert said.splitlines()[-1].startswith(f"{name}: error: ")
    assert message in said.splitlines()[-1]


HELP = """
import sys
from boundlab.cli import main
from boundlab.commands.table import COMMANDS
lines = [["--help"], ["--version"], [], ["frobnicate"], ["certify", "--epsilon"], ["completion"]]
for line in [*lines, *([name, "--help"] for name in COMMANDS)]:
    main(line)
    assert not {"torch", "numpy", "rich"} & set(sys.modules), line
"""


def test_help_needs_no_torch() -> None:
    subprocess.run([sys.executable, "-c", HELP], check=True, capture_output=True)


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().err
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == said
    assert all(f"  {name} " in said for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every argument stands under a heading, with what it means."""
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: boundlab {name}")
    assert ("example" in said and "--json" in said) or name in NO_TABLE
    parser = parsers()[name]
    assert parser.description
    ours = [group for group in parser._action_groups if group._group_actions]
    assert not {"options", "positional arguments"} & {group.title for group in ours}
    for action in parser._actions:
        assert action.help
        if action.help == argparse.SUPPRESS:  # another spelling
            continue
        assert (action.option_strings or [action.metavar])[-1] in said


def test_work_of_commands_is_there() -> None:
    for one in COMMANDS.values():
        module, _, function = one.work.partition(":")
        assert callable(getattr(import_module(f"boundlab.commands.{module}"), function))
        assert not one.help.endswith(".")
