"""``boundlab train``, ``evaluate`` and ``words`` for sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.commands import run
from tests.helpers.data import write_treebank

# -- training, evaluation and the commands ---------------------------------------------------------


@pytest.mark.parametrize("method", ["ibp", "crown-ibp"])
def test_from_files_to_verdicts(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, output = write_treebank(tmp_path), tmp_path / "run"
    flags = [
        "--epochs",
        "6",
        "--phrases",
        "2",
        "--share",
        "0.5",
        "--batch",
        "12",
        "--length",
        "3",
        "--lr",
        "0.003",
        "--method",
        method,
    ]
    assert (
        run("train", "sst-transformer", "--files", files, "--output", output, *flags, "--epochs", 3)
        == 0
    )
    assert (
        run("train", "sst-transformer", "--files", files, "--output", output, *flags, "--resume")
        == 0
    )
    assert "going on from epoch 3" in capsys.readouterr().out
    call = [
        "evaluate",
        output,
        "--files",
        files,
        "--budgets",
        0,
        1,
        2,
        "--methods",
        "ibp",
        "crown-ibp",
    ]
    document = tmp_path / "document.json"
    assert run(*call, "--json", document) == 0
    assert "left by the attack" in capsys.readouterr().out
    assert json.loads(document.read_text()) == json.loads((output / "words.json").read_text())
    assert run(*call, "complete") == 1
    assert "verifies images, not sentences" in capsys.readouterr().err
    found = json.loads((output / "words.json").read_text())
    for shares in found["verified"].values():
        assert shares["0"] == found["clean"] >= shares["1"] >= shares["2"]
        assert all(shares[budget] <= found["attacked"][budget] for budget in shares)
    assert found["clean"] == 1.0  # praise and blame are easily told apart
    assert (
        run(
            "words",
            "A fine and lovely film, unheard-of!",
            "--model",
            output,
            "--files",
            files,
            "--budgets",
            1,
            2,
        )
        == 0
    )
    said = capsys.readouterr().out
    assert (
        "positive" in said
        and "great" in said
        and "not in the vocabulary" in said
        and "certified margin" in said
        and "->" in said
    )
    assert run("words", "", "--model", output, "--files", files) == 1
    (files / "trees_train.txt").write_text("(4 (3 fine) (2 film))\n(4 (3 fine) (2 film))")
    assert run(*call) == 1
    assert "trained with" in capsys.readouterr().err
