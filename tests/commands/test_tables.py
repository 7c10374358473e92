"""Results as tables."""

from __future__ import annotations

import csv
import importlib.util
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.commands.certificates import Certification, Run, Task
from boundlab.commands.tables import COLUMNS, verdict_table, write_table


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_margin_has_a_row(job: tuple[bl.Net, Certification, Tensor], tmp_path: Path) -> None:
    _, found, _ = job
    write_table(tmp_path / "results", verdict_table(found))
    rows = read(tmp_path / "results.csv")
    assert tuple(rows[0]) == COLUMNS
    bounds = [row for row in rows if row["method"] != "attack"]
    assert len(bounds) == sum(run.margins.numel() for run in found.runs)
    for row in bounds:
        run = found.run(row["method"], float(row["radius"]))
        image, label, k = (int(row[name]) for name in ("image", "label", "class"))
        assert label == found.labels[image] and k != label
        assert int(row["prediction"]) == found.predictions[image]
        assert float(row["margin"]) == float(run.margins[image, k - (k > label)])  # exactly
        assert row["verdict"] == found.verdicts(run.radius, run.method)[image]
    attacks = [row for row in rows if row["method"] == "attack"]
    assert len(attacks) == sum(len(run.images) for run in found.attacks) > 0
    for row in attacks:
        assert (float(row["margin"]) <= 0) == (row["verdict"] == "falsified")


def test_the_same_in_parquet(job: tuple[bl.Net, Certification, Tensor], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = verdict_table(job[1])
    write_table(tmp_path / "results", table)
    held = parquet.read_table(tmp_path / "results.parquet").to_pydict()
    assert held == {name: list(column) for name, column in table.items()}


def test_without_pyarrow(
    job: tuple[bl.Net, Certification, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    without = lambda name, *rest: None if name == "pyarrow" else find(name, *rest)
    monkeypatch.setattr(importlib.util, "find_spec", without)
    write_table(tmp_path / "results", verdict_table(job[1]))
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_odd_numbers(tmp_path: Path) -> None:
    margins = torch.tensor([[math.nan, math.inf]], dtype=torch.float64)
    run = Run("ibp", 0.1, margins, 0.0)
    label = torch.tensor([2])
    found = Certification(Task("", "", 1, 3, "inf", None), label, label - 3, (run,))
    write_table(tmp_path / "t", verdict_table(found))
    rows = read(tmp_path / "t.csv")
    assert [(row["class"], row["margin"], row["verdict"]) for row in rows] == [
        ("0", "nan", "wrong"),
        ("1", "inf", "wrong"),
    ]


def test_nothing_to_say(tmp_path: Path) -> None:
    write_table(tmp_path / "t", {"image": [0, 1], "broken": [0.1, None]})
    assert [row["broken"] for row in read(tmp_path / "t.csv")] == ["0.1", ""]
