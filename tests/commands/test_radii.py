"""``boundlab radius``: files, resumption, what is shown."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import boundlab as bl
from boundlab.commands import radii
from boundlab.commands.charts import bins
from boundlab.radius import Radii
from tests.helpers.commands import error, run
from tests.helpers.pages import Structure, assert_accessible, assert_self_contained

PLACES = [0.45, 0.1, 0.52, 0.2, 0.9, 0.3, 0.7]
LABELS = [0, 0, 1, 1, 1, 0, 1]  # the fourth is wrong
COMMAND = ["radius", "zoo:line", "near.npz", "--batch", "3"]


@pytest.fixture
def line(folder: Path) -> Path:
    """What an image withstands is its distance from 0.5."""
    np.savez("near.npz", x=np.array(PLACES, np.float32)[:, None], y=LABELS)
    return folder


def table(output: str = "boundlab-radius") -> list[dict[str, str]]:
    with (Path(output) / "radii.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_radii_and_files(line: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*COMMAND, "--tolerance", "0.001") == 0
    printed = capsys.readouterr().out
    assert "6 of 7 images are classified correctly" in printed and "█" in printed
    for row, place, label in zip(table(), PLACES, LABELS, strict=True):
        proved, broken = float(row["proved"]), float(row["broken"])
        if (place > 0.5) != label:
            assert proved == broken == 0
            continue
        assert abs(place - 0.5) * 0.997 <= proved < broken <= abs(place - 0.5) * 1.003
    content = json.loads(Path("boundlab-radius/results.json").read_text())
    assert content["kind"] == "radii" and content["search"]["tolerance"] == 0.001
    assert content["proved"] == [float(row["proved"]) for row in table()]
    with np.load("boundlab-radius/counterexamples.npz") as found:
        assert found["image"].tolist() == [0, 1, 2, 4, 5, 6]
        assert found["radius"].tolist() == [float(table()[k]["broken"]) for k in found["image"]]
        assert (found["output"].argmax(1) != found["label"]).mean() > 0.4  # the others tie
    page = Path("boundlab-radius/index.html").read_text()
    assert_self_contained(page)
    assert_accessible(page)
    found = Structure(page)
    rows = table()
    shown = {int(card["data-image"]): card for card in found.all("article")}
    assert [shown[k]["data-verdicts"] for k in range(7)] == list("bbbwbbb")
    for k, card in shown.items():
        assert float(card["data-values"]) == pytest.approx(float(rows[k]["proved"]), rel=1e-3)
    middle = sorted(float(row["proved"]) for row in rows)[3]
    assert f'<p class="lead"><b>{middle:.3g}</b> median certified radius' in page
    assert "<b>85.7%</b> 6 of 7 classified correctly" in page and "SHA-256" in page
    for kind in ("proved", "broken"):
        counts = re.findall(rf"<title>{kind}, [^:]*: (\d+)</title>", page)
        assert sum(map(int, counts)) == 6


def test_not_broken_is_empty(line: Path) -> None:
    assert run(*COMMAND, "--restarts", "0") == 0
    assert [row["broken"] for row in table()] == ["", "", "", "0.0", "", "", ""]
    assert not Path("boundlab-radius/counterexamples.npz").exists()


@pytest.mark.parametrize("stop_at", [0, 1, 2])
def test_interrupt_and_resume(
    line: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stop_at: int
) -> None:
    assert run(*COMMAND, "--output", "whole") == 0
    calls = 0

    def stopping(*args: object, **kwargs: object) -> Radii:
        nonlocal calls
        calls += 1
        if calls == stop_at + 1:
            raise KeyboardInterrupt
        return bl.certified_radius(*args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(radii, "certified_radius", stopping)
        assert run(*COMMAND) == 130
        assert "--resume goes on from there" in capsys.readouterr().err
    assert "already holds results" in error(capsys, *COMMAND)
    assert run(*COMMAND, "--resume") == 0
    assert table() == table("whole")
    one, two = (np.load(Path(at) / "counterexamples.npz") for at in ("whole", "boundlab-radius"))
    assert all(np.array_equal(one[name], two[name]) for name in one.files)


def test_files_of_something_else(line: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*COMMAND, "--output", "out") == 0
    again = [*COMMAND, "--output", "out", "--resume"]
    assert "of another search" in error(capsys, *again, "--method", "ibp")
    assert "another norm" in error(capsys, *again, "--norm", "2")
    certify = ["certify", "zoo:line", "near.npz", "--output", "out", "--resume"]
    assert "it holds radii, not verdicts" in error(capsys, *certify)
    with np.load("out/counterexamples.npz") as found:
        held = dict(found)
    held["radius"][0] /= 2
    np.savez("out/counterexamples.npz", **held)
    assert "does not belong to" in error(capsys, *again)


def test_refusals(line: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*COMMAND, "--method", "crwn") == 2
    assert "Did you mean 'crown'?" in capsys.readouterr().err
    fails = lambda k, *options: error(capsys, *COMMAND, "--output", f"out{k}", *options)
    assert "most must be a number above 0" in fails(1, "--most", "0")
    assert "tolerance must be a number above 0" in fails(2, "--tolerance", "-1")


def test_bins() -> None:
    assert bins([0.0, 0.1, 0.49, 0.5, 1.0], 1.0, 2) == [3, 2]
    assert bins([0.0, 0.0], 0.0, 3) == [2, 0, 0]
