"""What goes where: tables on standard output, progress on standard error, one JSON document for
scripts."""

from __future__ import annotations

import argparse
import io
import json
import logging
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boundlab.commands.competition import Instance
from boundlab.commands.operators import supported
from boundlab.commands.outcomes import Outcome, OutcomeFile
from boundlab.commands.speaking import finite, listening, out, progress
from boundlab.onnx.table import ROWS
from tests.helpers.commands import run

OPTIONS = argparse.Namespace(json=None, quiet=False, verbose=False)


def printed(capsys: pytest.CaptureFixture[str], *line: object) -> dict[str, Any]:
    """The document that a command prints, and nothing else on standard output."""
    capsys.readouterr()
    assert run(*line, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    return found


@pytest.fixture
def line(folder: Path) -> Path:
    places = np.array([[0.45], [0.1], [0.52], [0.2], [0.9]], np.float32)
    np.savez("near.npz", x=places, y=[0, 0, 1, 1, 1])  # the fourth is wrong
    return folder


def test_certify(line: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["certify", "zoo:line", "near.npz", "--eps", "0.1", "0.03"]
    found = printed(capsys, *command, "--methods", "IBP")
    assert found["images"] == 5 and found["correct"] == 0.8 and found["norm"] == "inf"
    shares = {one["radius"]: (one["proved"], one["falsified"]) for one in found["methods"]}
    assert shares == {0.1: (0.4, 0.4), 0.03: (0.6, 0.2)}
    assert [one["proved"] for one in found["together"]] == [0.4, 0.6]
    assert Path(found["results"]).is_file() and Path(found["report"]).is_file()


def test_a_file_and_quiet(line: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["attack", "zoo:line", "near.npz", "--eps", "0.1"]
    assert run(*command, "--json", "out.json", "--output", "a") == 0
    said = capsys.readouterr()
    assert "falsified" in said.out and not said.err
    (found,) = json.loads(Path("out.json").read_text())["radii"]
    assert found == {"radius": 0.1, "falsified": 0.4, "open": 0.4, "wrong": 0.2}
    assert run(*command, "--json", "out.json", "--output", "b", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_radius(line: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "radius", "zoo:line", "near.npz", "--restarts", "0", "--norm", "linf")
    assert found["correct"] == [True, True, True, False, True]
    assert found["broken"] == [None, None, None, 0.0, None]
    assert all(0.95 <= radius / 0.4 <= 1 for radius in found["proved"][1::3])


def test_an_error_of_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", tmp_path / "none.onnx", tmp_path / "p.vnnlib", "--json", "-") == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["status"] == "error" and "no such file" in said.err


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, status in (("a", "unsat"), ("b", "sat")):
        held = OutcomeFile.open(tmp_path / name / "results.csv", resume=False)
        held.put(Instance("n.onnx", "p.vnnlib", 9.0), Outcome(status, 1.0))
        held.put(Instance("n.onnx", "q.vnnlib", 9.0), Outcome("unsat", 2.0))
    assert run("compare", tmp_path / "a", tmp_path / "b", "--json") == 1  # they contradict
    found = json.loads(capsys.readouterr().out)
    assert [(one["a"], one["b"]) for one in found["contradictions"]] == [("unsat", "sat")]
    (counts,) = found["sets"].values()
    assert counts["all"] == counts["both"] == 2 and counts["clash"] == counts["time A/B"] == 1


def test_operators(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "ops")
    assert [one["name"] for one in found["operators"]] == [one.name for one in supported()]
    found = printed(capsys, "ops", "--onnx")
    assert {one["name"] for one in found["operators"]} == set(ROWS)


def test_what_json_has_no_numbers_for() -> None:
    assert finite({"a": (1.5, math.inf), "b": [math.nan, "inf"]}) == {
        "a": [1.5, None],
        "b": [None, "inf"],
    }


@pytest.mark.parametrize("name", ["quiet", "verbose", ""])
def test_what_is_logged(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("boundlab.somewhere")
    options = argparse.Namespace(**{**vars(OPTIONS), **({name: True} if name else {})})
    with listening(options):
        for say in (logger.info, logger.warning, logger.error):
            say("%s", say.__name__)
    logger.error("nobody listens any more")
    said = capsys.readouterr().err.splitlines()
    levels = {"quiet": ["error"], "verbose": ["info", "warning", "error"], "": ["warning", "error"]}
    assert [text for text in said if text.startswith("boundlab: ")] == [
        f"boundlab: {level}" for level in levels[name]
    ]


def test_where_commands_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert progress(OPTIONS).quiet  # standard error is no terminal here
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert not progress(OPTIONS).quiet
    quiet = argparse.Namespace(json="-", quiet=True)
    assert progress(quiet).quiet and out(quiet).quiet and out(quiet).stderr
    assert not out(OPTIONS).stderr
