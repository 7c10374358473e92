"""``boundlab train`` and ``boundlab evaluate`` from files to figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from boundlab.cli import main
from boundlab.commands.parsers.train import entries
from boundlab.training.checkpoints import CHECKPOINT
from boundlab.training.entries import GROUPS, entry_of
from boundlab.training.metrics import METRICS, RECIPE
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import RECIPES
from tests.helpers.commands import FLAGS, run


def test_train_and_evaluate(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    assert run("train", "mnist-0.1-lirpa", "--files", files, "--output", output, *FLAGS) == 0
    said = capsys.readouterr().out
    assert "epoch    2" in said and "not proved" in said
    assert all((output / name).exists() for name in (CHECKPOINT, METRICS, RECIPE))

    assert (
        run(
            "evaluate",
            output,
            "--files",
            files,
            "--limit",
            30,
            "--methods",
            "IBP",
            "CROWN",
            "--steps",
            3,
            "--restarts",
            1,
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "verified by crown" in said and "under attack (PGD)" in said and "95 %" in said
    found = json.loads((output / "errors.json").read_text())
    assert found["count"] == 30 and found["seed"] == 3 and found["eps"] == pytest.approx(5 / 255)
    verified = found["verified"]
    assert verified["ibp"] <= verified["crown"] <= 1 - found["attacked"] <= 1 - found["clean"]
    assert _share(said, "verified by crown") == pytest.approx(verified["crown"], abs=1e-4)
    assert _share(said, "clean error") == pytest.approx(found["clean"], abs=1e-4)
    assert (
        run(
            "evaluate",
            output / CHECKPOINT,
            "--files",
            files,
            "--limit",
            10,
            "--eps",
            "0",
            "--restarts",
            0,
            "--json",
        )
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((output / "errors.json").read_text())
    verified = ["evaluate", output, "--files", files, "--limit", 5, "--methods", "ibp", "complete"]
    assert run(*verified, "--timeout", 0.2, "--restarts", 0) == 0
    said = capsys.readouterr().out
    assert "attack (complete)" in said and "verified by complete" in said
    assert "not verified" not in said
    assert "verified " in said and ", falsified " in said and ", open " in said
    found = json.loads((output / "errors.json").read_text())
    left = found["attacked"] + found["open"]
    assert 1 - left == pytest.approx(found["verified"]["complete"])


def _share(said: str, row: str) -> float:
    """The first number of a row of a table."""
    (line,) = [line for line in said.splitlines() if row in line]
    return float(re.findall(r"([\d.]+)%", line)[0]) / 100


def test_resume_and_refusals(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    assert (
        run("train", "mnist-0.1-ibp", "--files", files, "--output", output, *FLAGS, "--epochs", 1)
        == 0
    )
    assert run("train", "mnist-0.1-ibp", "--files", files, "--output", output, *FLAGS) == 1
    assert "--resume" in capsys.readouterr().err
    assert (
        run("train", "mnist-0.1-ibp", "--files", files, "--output", output, *FLAGS, "--resume") == 0
    )
    assert "going on from epoch 1" in capsys.readouterr().out
    assert (
        run(
            "train",
            "mnist-0.1-ibp",
            "--files",
            files,
            "--output",
            output,
            *FLAGS,
            "--lr",
            "0.1",
            "--resume",
        )
        == 1
    )
    assert "other lr" in capsys.readouterr().err


def test_a_recipe_from_a_file(files: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'name = "mine"\nmodel = "small-cnn"\nepochs = 1\nbatch = 48\nmethod = "natural"\n'
    )
    assert (
        run(
            "train",
            recipe,
            "--files",
            files,
            "--output",
            tmp_path / "run",
            "--threads",
            1,
            "--limit",
            60,
        )
        == 0
    )
    assert 'model = "small-cnn"' in (tmp_path / "run" / RECIPE).read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["train", "mnist", "--files", ".", "--output", "x"], "For mnist there are: mnist-0.1"),
        (["train", "mnist-0.1-ibp", "--output", "x"], "needs --files"),
        (["train", "--output", "x"], "name a RECIPE"),
        (
            ["train", "mnist-0.1-ibp", "--output", "x", "--milestones", "1.5"],
            "whole numbers of epochs",
        ),
        (
            ["train", "mnist-0.1-ibp", "--files", ".", "--output", "x", "--eps", "-1"],
            "not be negative",
        ),
        (["train", "mnist-0.1-ibp", "--files", "nowhere", "--output", "x"], "nowhere"),
        (
            ["train", "mnist-0.1-ibp", "--files", ".", "--output", "x", "--threads", "0"],
            "--threads",
        ),
        (["evaluate", "nowhere", "--files", "."], "nor a folder nowhere with checkpoint.pt in it"),
        (["evaluate", "a/checkpoint.pt", "--files", "."], "no checkpoint a/checkpoint.pt\n"),
        (["evaluate", "nowhere", "--files", ".", "--timeout", "5"], "'complete'"),
        (
            ["evaluate", "nowhere", "--files", ".", "--methods", "complete", "--timeout", "0"],
            "positive number of seconds",
        ),
    ],
)
def test_errors_are_explained(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert text in capsys.readouterr().err


def test_every_flag_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for one in entries():
        assert f"--{one.name.replace('_', '-')} " in said
        assert entry_of(one).meaning in said, one.name
    assert all(title in said for title in GROUPS.values())
    assert "--start EPOCHS" in said and "(default of a recipe: 1,0)" in said


def test_recipes_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["recipes"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in RECIPES)
    line = next(line for line in said.splitlines() if line.startswith("mnist-0.3-ibp"))
    assert "12.76%" in line and "9 to 19" in line
    line = next(line for line in said.splitlines() if line.startswith("cifar10-cnn7-bn-ibp"))
    assert line.split()[-3:] == ["-", "-", "-"]
    assert main(["recipes", "mnist-0.3-ibp"]) == 0
    path = tmp_path / "mine.toml"
    path.write_text(capsys.readouterr().out)
    assert Recipe.load(path) == RECIPES["mnist-0.3-ibp"]
    assert main(["recipes", "mnist-0.3"]) == 1
