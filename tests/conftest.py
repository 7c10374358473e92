"""One thread a process: the tests run in several processes at once, and two threads on a busy core are slower than one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
OPEN = {line for line in (Path(__file__).parent / "open_points.txt").read_text().splitlines() if not line.startswith("#")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Open points (open_points.txt) are run and reported, but do not fail the run."""
    for item in items:
        if item.nodeid in OPEN:
            item.add_marker(pytest.mark.xfail(reason="an open point, see tests/open_points.txt", strict=False))
