"""The command line, called in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundlab.cli import main

FLAGS = [
    "--epochs",
    "2",
    "--batch",
    "32",
    "--start",
    "0.5",
    "--length",
    "1",
    "--milestones",
    "1",
    "--eps",
    "5/255",
    "--seed",
    "3",
]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def results(output: str = "boundlab-report") -> list[dict[str, object]]:
    """The runs that a command has left in a folder."""
    return list(json.loads((Path(output) / "results.json").read_text())["runs"])


def error(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line that a failing command prints."""
    capsys.readouterr()
    assert run(*argv) == 1
    lines = capsys.readouterr().err.splitlines()
    lines = [line for line in lines if "divided by 255" not in line]
    assert len(lines) == 1
    assert lines[0].startswith("boundlab: ")
    return lines[0]
