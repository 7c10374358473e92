"""What makes the tests quicker and changes no result.

One thread a process: the tests run in several processes at once, and two threads on a busy core are
slower than one. Few searches for garbage, and none among what was imported: torch.export makes many
objects. A quicker ``Callable`` for the annotations of a method that torch.export calls thousands of
times, which Python evaluates at every call.
"""

from __future__ import annotations

import gc
import json
import typing
from pathlib import Path

import pytest
import torch

from tests.helpers import versions
from tests.helpers.data import NEIGHBOURS, TREES, write_mnist

torch.set_num_threads(1)
gc.set_threshold(20_000, 10, 10)
torch._ops.Callable = typing.Callable  # type: ignore[assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = versions.reason(item.nodeid)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write_mnist(tmp_path / "files")


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    for split, lines in TREES.items():
        (tmp_path / f"trees_{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "counterfitted_neighbors.json").write_text(json.dumps(NEIGHBOURS))
    return tmp_path
