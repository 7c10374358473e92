"""One thread a process: the tests run in several processes at once, and two threads on a busy core
are slower than one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.helpers.data import write_mnist

torch.set_num_threads(1)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write_mnist(tmp_path / "files")
