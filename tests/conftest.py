"""One thread a process: the tests run in several processes at once, and two threads on a busy core
are slower than one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.helpers.data import NEIGHBOURS, TREES, write_mnist

torch.set_num_threads(1)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write_mnist(tmp_path / "files")


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    for split, lines in TREES.items():
        (tmp_path / f"trees_{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "counterfitted_neighbors.json").write_text(json.dumps(NEIGHBOURS))
    return tmp_path
