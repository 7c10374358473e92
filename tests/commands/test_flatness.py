"""``boundlab flatness``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundlab.cli import main

# -- training and measuring ------------------------------------------------------------------------


def test_the_command_measures_a_trained_network(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, picture = tmp_path / "run", tmp_path / "surface.svg"
    flags = [
        "--epochs",
        "2",
        "--batch",
        "8",
        "--share",
        "0.25",
        "--start",
        "0",
        "--length",
        "1",
        "--milestones",
        "1",
    ]
    assert (
        main(["train", "flat-mnist", "--files", str(files), "--output", str(output), *flags]) == 0
    )
    call = [
        "flatness",
        str(output),
        "--files",
        str(files),
        "--methods",
        "crown-ibp",
        "crown",
        "--limit",
        "10",
        "--surface",
        str(picture),
    ]
    assert main(call) == 0
    said = capsys.readouterr().out
    assert (
        "certified by crown" in said
        and "attacking" in said
        and "test error" in said
        and "<svg" in picture.read_text()
    )
    found = json.loads((output / "flatness.json").read_text())
    assert (
        found["samples"] == 10
        and 0 <= found["attacked"] <= found["flatness"]["crown"] <= found["flatness"]["crown-ibp"]
    )
    assert main(["flatness", str(tmp_path / "nothing"), "--files", str(files)]) == 1
