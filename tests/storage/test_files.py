"""Files are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundlab as bl
from boundlab.storage.files import write_atomically


def test_atomic_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "file"
    write_atomically(path, "old")

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(bl.ArgumentError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert len(list(path.parent.iterdir())) == 1
