"""``boundlab attack``: images, and properties in files."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import boundlab as bl
from tests.helpers.commands import error, run
from tests.helpers.onnx_files import model, node, written

PROPERTY = """
(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real)
(assert (>= X_0 0.1)) (assert (<= X_0 0.7)) (assert (>= X_1 -0.3)) (assert (<= X_1 0.9))
(assert (>= Y_0 {threshold}))
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """y = relu(x_0 / 3 + x_1): at most 0.7 / 3 + 0.9 in the box."""
    monkeypatch.chdir(tmp_path)
    weight = np.array([[1 / 3], [1.0]], np.float32)
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])]
    written(model(nodes, {"x": [1, 2]}, ["y"], {"w": weight}), tmp_path)
    (tmp_path / "near.vnnlib").write_text(PROPERTY.format(threshold=1.13))
    (tmp_path / "never.vnnlib").write_text(PROPERTY.format(threshold=1.14))
    return tmp_path


def test_a_violated_property(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("attack", "net.onnx", "near.vnnlib", "--timeout", "5", "--result", "out.txt") == 0
    assert "A counterexample was found" in capsys.readouterr().out
    word, rest = Path("out.txt").read_text().split("\n", 1)
    assert word == "sat"
    assert re.fullmatch(r"\(\(X_0 \S+\)\s+\(X_1 \S+\)\s+\(Y_0 \S+\)\)\s*", rest)
    values = {name: float(text) for name, text in re.findall(r"\(([XY]_\d) (\S+?)\)", rest)}
    x = torch.tensor([[values["X_0"], values["X_1"]]], dtype=torch.float64)
    y = bl.load_onnx("net.onnx")(x.float())
    assert y.double().item() == values["Y_0"]  # exactly
    assert bl.load_vnnlib("near.vnnlib").violated(x, y).all()
    assert "there is a file out.txt already" in error(
        capsys, "attack", "net.onnx", "near.vnnlib", "--result", "out.txt"
    )


def test_a_property_that_holds(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["attack", "net.onnx", "never.vnnlib", "--restarts", "3", "--steps", "5"]
    assert run(*command, "--result", "out.txt") == 0
    assert "No counterexample was found" in capsys.readouterr().out
    assert Path("out.txt").read_text() == "unknown\n"


def test_refusals_of_properties(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails = lambda *argv: error(capsys, "attack", *argv)
    assert "in an ONNX file, not on 'zoo:cnn'" in fails("zoo:cnn", "near.vnnlib")
    assert "there is no file gone.onnx" in fails("gone.onnx", "near.vnnlib")
    assert "gone.vnnlib" in fails("net.onnx", "gone.vnnlib")
    assert "timeout" in fails("net.onnx", "near.vnnlib", "--timeout", "-1")
    wide = PROPERTY + "(declare-const X_2 Real) (assert (>= X_2 0)) (assert (<= X_2 1))"
    (files / "wide.vnnlib").write_text(wide.format(threshold=1))
    assert "about 3 inputs, and net.onnx takes 2" in fails("net.onnx", "wide.vnnlib")
    assert not list(files.glob("boundlab-*"))


# -- images ----------------------------------------------------------------------------------------


def test_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("near.npz", x=np.array([[0.45], [0.1], [0.52], [0.2]], np.float32), y=[0, 0, 1, 1])
    command = ["attack", "zoo:line", "near.npz", "--eps", "0.001", "0.06"]
    assert run(*command) == 0
    printed = capsys.readouterr().out
    assert "falsified" in printed and "counterexamples.npz" in printed
    output = Path("boundlab-attack")
    with (output / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"attack"}
    broken = [row for row in rows if row["verdict"] == "falsified"]
    with np.load(output / "counterexamples.npz") as found:
        assert [int(row["image"]) for row in broken] == found["image"].tolist()
        assert [float(row["radius"]) for row in broken] == found["radius"].tolist()
        classes = found["output"].argmax(1)
        assert (classes != found["label"]).all()
        assert [int(row["class"]) for row in broken] == classes.tolist()
    assert [row["image"] for row in broken] == ["0", "2"]
    assert "already holds results" in error(capsys, *command)
    assert run(*command, "--resume") == 0
    # what was found stays when images are certified into the same folder
    assert (
        run(
            "certify", "zoo:line", "near.npz", "--eps", "0.06", "--methods", "ibp", "--resume",
            "--output", "boundlab-attack",
        )
        == 0
    )  # fmt: skip
    assert (output / "index.html").read_text().count("becomes <b>") == len(broken)


def test_nothing_to_find(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("attack", "zoo:cnn", "data.npz", "--eps", "0", "--steps", "1") == 0
    assert "None was found" in capsys.readouterr().out
    assert not Path("boundlab-attack/counterexamples.npz").exists()


def test_refusals_of_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails = lambda *argv: error(capsys, "attack", "zoo:cnn", "data.npz", *argv)
    assert "belong to properties" in fails("--timeout", "3")
    assert "restarts >= 1" in fails("--restarts", "0")
    assert "there is no data file gone.npz" in error(capsys, "attack", "zoo:cnn", "gone.npz")
