"""The pictures that explain methods are drawn by a script, and are those of docs/pictures/."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_all_pictures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts" / "draw_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    matplotlib.use("agg")
    monkeypatch.setattr(script, "PICTURES", tmp_path)
    script.main()
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in (ROOT / "docs" / "pictures").glob("*.svg")}
    for name in made:
        assert "<path" in (tmp_path / name).read_text()
