"""``boundlab train`` with models and data of the user's own, ``--resume``, and the commands for
what it leaves: ``curves``, ``export``, ``certify``."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import boundlab as bl
from boundlab.training.checkpoints import CHECKPOINT
from boundlab.training.metrics import ERRORS, METRICS, RECIPE, read_rows
from tests.helpers.commands import error, run
from tests.helpers.data import images

SHORT = [
    "--epochs", "1", "--batch", "32", "--start", "0", "--length", "1", "--milestones", "1",
    "--eps", "0.02", "--method", "ibp", "--threads", "1",
]  # fmt: skip
RECIPE_NAME = "mnist-0.1-ibp"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with own data and two runs on them: of an own model, and of a built-in one."""
    folder = tmp_path_factory.mktemp("own")
    data = images()
    pixels, labels = data.images.numpy(), data.labels.numpy()
    np.savez(
        folder / "mine.npz", images=pixels, labels=labels, test_images=pixels, test_labels=labels
    )
    np.savez(folder / "test.npz", images=pixels[:6], labels=labels[:6])
    base = ["train", RECIPE_NAME, *SHORT, "--data", folder / "mine.npz"]
    own = ["--model", "tests.helpers.own:net", "--output", folder / "own"]
    assert run(*base, *own) == 0
    plain = ["--model", "mlp", "--output", folder / "plain", "--limit", 64]
    assert run(*base, *plain) == 0
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, made the current folder."""
    shutil.copytree(trained, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_evaluate_and_certify_say_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--model", "tests.helpers.own:net"]
    assert run("evaluate", "own", *own, "--data", "test.npz", "--restarts", 0) == 0
    found = json.loads((folder / "own" / ERRORS).read_text())
    assert found["count"] == 6 and found["eps"] == pytest.approx(0.02)
    certify = ["certify", "tests.helpers.own:net", "test.npz", "--weights", "own", "--eps", "0.02"]
    assert run(*certify, "--methods", "ibp", "crown-ibp", "--output", "report") == 0
    runs = json.loads(Path("report/results.json").read_text())["runs"]
    proved = torch.tensor([one["margins"] for one in runs]).amin(2).amax(0) > 0
    assert [one["method"] for one in runs] == ["ibp", "crown-ibp"]
    assert int(proved.sum()) == round(6 * found["verified"]["crown-ibp"])
    assert run("certify", "plain", "test.npz", "--eps", "0.02", "--output", "other") == 0
    assert "--mean" in error(capsys, "certify", "plain", "test.npz", "--mean", "0.5")
    assert "--model" in error(capsys, "certify", "own", "test.npz")
    assert "--weights" in error(capsys, "certify", "plain", "test.npz", "--weights", "own")
    assert run("evaluate", "plain", "--limit", 8, "--restarts", 0) == 0  # of its own file
    assert "no data file" in error(capsys, "evaluate", "plain", "--data", "nowhere.npz")


def test_resume_goes_on_with_the_stored_recipe(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "--resume", "--output", "plain", "--epochs", 2) == 0
    said = capsys.readouterr().out
    assert "going on from epoch 1" in said and len(read_rows(folder / "plain")) == 2
    before = Path("plain", CHECKPOINT).read_bytes()
    assert run("train", "--resume", "--output", "plain") == 0  # it is done
    wrong = ["train", "--resume", "--output", "plain"]
    line = error(capsys, *wrong, "--lr", "0.25", "--limit", "32", "--seed", "0")
    assert "lr (0.001, now 0.25), limit (64, now 32)" in line and "seed" not in line
    assert "leave out RECIPE and the flags that differ" in line
    line = error(capsys, "train", "mnist-0.3-lirpa", *wrong[1:])
    assert "method (ibp, now crown-ibp)" in line and "epochs" not in line
    assert Path("plain", CHECKPOINT).read_bytes() == before
    Path("mine.npz").rename("moved.npz")
    assert run(*wrong, "--epochs", 3, "--data", "moved.npz") == 0
    assert "name a RECIPE" in error(capsys, "train", "--resume", "--output", "empty")


def test_resume_runs_no_code_that_only_a_file_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume = ["train", "--resume", "--output", "own", "--epochs", "2"]
    line = error(capsys, *resume)
    assert line.endswith("add --model tests.helpers.own:net")
    assert run(*resume, "--model", "tests.helpers.own:net") == 0
    Path("mine.toml").write_text(Path("own", RECIPE).read_text())
    assert run("train", "mine.toml", "--resume", "--output", "own") == 0  # which names it too
    line = error(capsys, *resume, "--model", "tests.helpers.own:two_classes")
    assert "model (tests.helpers.own:net, now tests.helpers.own:two_classes)" in line


def test_ctrl_c_says_how_to_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("boundlab.commands.training.follow", interrupted)
    assert run("train", "--resume", "--output", "plain", "--epochs", 2) == 130
    assert "boundlab train --resume --output plain goes on from there" in capsys.readouterr().out
    own = ["--model", "tests.helpers.own:net"]
    assert run("train", "--resume", "--output", "own", "--epochs", 2, *own) == 130
    assert "--output own --model tests.helpers.own:net goes on" in capsys.readouterr().out


def test_code_that_gives_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "points"
    own = ["--model", "tests.helpers.own:points_net", "--data", "tests.helpers.own:points_data"]
    assert run("train", RECIPE_NAME, *SHORT, *own, "--range", "none", "--output", output) == 0
    assert "range = []" in (output / RECIPE).read_text()
    assert run("evaluate", output, *own[:2], "--data", own[3], "--limit", 9, "--restarts", 1) == 0
    assert json.loads((output / ERRORS).read_text())["count"] == 9
    assert "must be one of mnist" in error(
        capsys, "train", RECIPE_NAME, "--data", "mine.txt", "--output", "x"
    )


# -- curves ----------------------------------------------------------------------------------------


def test_curves_compare_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("plain", "plain-1")
    recipe = Path("plain-1", RECIPE)
    recipe.write_text(recipe.read_text().replace("seed = 0", "seed = 1"))
    metrics = Path("plain-1", METRICS)
    lines = metrics.read_text().splitlines()
    changed = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    first = float(changed["clean_error"])
    changed["clean_error"] = str(first + 0.25)
    metrics.write_text(f"{lines[0]}\n{','.join(changed.values())}\n")
    Path("plain", ERRORS).write_text(
        json.dumps(
            {
                "format": 2,
                "eps": 0.02,
                "count": 8,
                "clean": 0.125,
                "attacked": 0.25,
                "verified": {"ibp": 0.5, "crown": 0.625},
            }
        )
    )
    assert run("curves", "plain", "plain-1", "own", "--plot", "pictures/curves.svg") == 0
    drawn = Path("pictures/curves.svg").read_text()
    assert "mnist-0.1-ibp (plain), 2 seeds" in drawn and "mnist-0.1-ibp (own)" in drawn
    assert drawn.startswith("<?xml") and "not verified in training" in drawn
    assert "must end with one of" in error(capsys, "curves", "own", "--plot", "curves.txt")
    capsys.readouterr()
    assert run("curves", "plain", "plain-1", "own") == 0
    said = capsys.readouterr().out
    joint = next(line for line in said.splitlines() if "(plain)" in line)
    assert f"{first + 0.125:.2%} ± {0.25 / 2**0.5:.2%}" in joint and "1 of 1" in joint
    assert "(own)" in said and "62.50%" in said
    metrics.write_text("")
    assert "no epochs yet in metrics.csv of plain-1" in error(capsys, "curves", "plain-1")
    assert "not the folder of a training run" in error(capsys, "curves", ".")
    Path("plain", ERRORS).write_text("[1]")
    assert "Run 'boundlab evaluate' again" in error(capsys, "curves", "plain")


# -- export ----------------------------------------------------------------------------------------


def test_programs_compute_what_the_network_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--model", "tests.helpers.own:net"]
    assert run("export", "own", *own, "--pt2", "out/net.pt2") == 0
    assert "differ by at most" in capsys.readouterr().out
    x = torch.rand(5, 1, 8, 8)
    model, _ = bl.load_run("own", own[1])
    torch.testing.assert_close(torch.export.load("out/net.pt2").module()(x), model(x))
    for words, text in (
        (["export", "own", *own], "give --onnx FILE"),
        (["export", "own", *own, "--pt2", "net.onnx"], "must end with .pt2"),
        (["export", "own", "--pt2", "net.pt2"], "give it, by --model"),
    ):
        assert text in error(capsys, *words)


def test_onnx_needs_its_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "onnxscript" else find(name)
    )
    line = error(capsys, "export", "plain", "--onnx", "net.onnx")
    assert "needs the onnxscript package: pip install 'boundlab[onnx]'" in line


def test_onnx_files_compute_what_the_network_does(folder: Path) -> None:
    pytest.importorskip("onnxscript", reason="writing ONNX files needs the extra onnx")
    assert run("export", "own", "--model", "tests.helpers.own:net", "--onnx", "net.onnx") == 0
    x = torch.rand(5, 1, 8, 8)
    model, _ = bl.load_run("own", "tests.helpers.own:net")
    torch.testing.assert_close(bl.load_onnx("net.onnx")(x), model(x), rtol=1e-4, atol=1e-5)
