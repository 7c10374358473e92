"""Curves of runs: seeds of one recipe are a band."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import boundlab as bl
from boundlab.training.metrics import COLUMNS, METRICS, RECIPE
from boundlab.training.recipes import RECIPES


def run(folder: Path, values: list[float], **changes: object) -> Path:
    """A run folder whose column not_proved has these values."""
    folder.mkdir()
    (folder / RECIPE).write_text(replace(RECIPES["mnist-0.1-ibp"], **changes).toml())
    place = COLUMNS.index("not_proved")
    lines = [",".join(COLUMNS)]
    for epoch, value in enumerate(values):
        row = ["0"] * len(COLUMNS)
        row[0], row[place] = str(epoch), str(value)
        lines.append(",".join(row))
    (folder / METRICS).write_text("\n".join(lines) + "\n")
    return folder


def test_seeds_are_a_band_and_what_one_of_them_has_more_a_line(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "a", [0.6, 0.4, 0.2], seed=0),
        run(tmp_path / "b", [0.8, 0.6], seed=1),
        run(tmp_path / "c", [0.5], eps=0.2),
    ]
    ax = bl.plot.curves(runs)
    lines = {line.get_label(): line.get_data() for line in ax.get_lines()}
    mean = lines["mnist-0.1-ibp (a), 2 seeds"]
    assert np.allclose(mean[0], [1, 2])
    assert np.allclose(mean[1], [0.7, 0.5])
    assert np.allclose(lines["mnist-0.1-ibp (c)"][1], [0.5])
    (rest,) = [data for label, data in lines.items() if label.startswith("_")]
    assert np.allclose(rest, [[2, 3], [0.4, 0.2]])
    (area,) = ax.collections
    assert {y for _, y in area.get_paths()[0].vertices.round(3)} == {0.4, 0.6, 0.8}
    assert {text.get_text() for text in ax.texts} == set(lines) - {
        label for label in lines if label.startswith("_")
    }


def test_a_single_run_and_another_metric_in_the_same_axes(tmp_path: Path) -> None:
    ax = bl.plot.curves(run(tmp_path / "a", [0.5, 0.25]))
    assert ax.get_ylabel() == "not verified in training"
    assert bl.plot.curves(str(tmp_path / "a"), "eps", ax=ax) is ax
    assert len(ax.texts) == 2  # each line is named once


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    good = run(tmp_path / "a", [0.5])
    with pytest.raises(bl.ArgumentError, match="Did you mean 'not_proved'"):
        bl.plot.curves(good, "not_prooved")
    with pytest.raises(bl.ArgumentError, match="no runs"):
        bl.plot.curves([])
    with pytest.raises(bl.ArgumentError, match=r"no recipe\.toml"):
        bl.plot.curves(tmp_path)
    (good / METRICS).write_text("epoch,loss\n")
    with pytest.raises(bl.ArgumentError, match="no epochs yet"):
        bl.plot.curves(good)
    (good / METRICS).write_text("epoch,loss\n0,1\n")
    with pytest.raises(bl.ArgumentError, match="cannot read not_proved"):
        bl.plot.curves(good)
    (good / METRICS).unlink()
    with pytest.raises(bl.ArgumentError, match="cannot read not_proved"):
        bl.plot.curves(good)
