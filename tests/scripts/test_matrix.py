"""scripts/matrix.py counts what pytest says, and tells whether bounds are the same."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("matrix", ROOT / "scripts" / "matrix.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["matrix"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


matrix = _load()


def test_versions_are_read() -> None:
    version = matrix.Version.of("2.6.0@3.11")
    assert (version.torch, version.python) == ("2.6.0", "3.11")
    for wrong in ("2.6.0", "2.6@3.11", "2.6.0@3", "2.6.0@3.11.7", "torch@3.11"):
        with pytest.raises(matrix.MatrixError, match="no version"):
            matrix.Version.of(wrong)


def test_the_versions_that_are_tested_by_default() -> None:
    versions = [matrix.Version.of(text) for text in matrix.VERSIONS]
    text = (ROOT / "pyproject.toml").read_text()
    assert any(f'"torch>={version.torch.removesuffix(".0")},<3"' in text for version in versions)
    for version in versions:
        assert f'"Programming Language :: Python :: {version.python}"' in text


def test_the_workflow_tests_these_versions() -> None:
    """The one without a job in the matrix is what constraints.txt pins, which make test runs."""
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    rows = re.findall(r'torch: "([\d.]+)", python: "([\d.]+)"', text)
    pinned = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    others = [text for text in matrix.VERSIONS if not text.startswith(f"{pinned[1]}@")]
    assert others == ["@".join(row) for row in rows]


def test_tests_are_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite name="a" tests="9" failures="2" errors="1" skipped="3"/>'
        '<testsuite name="b" tests="5" failures="0" errors="0" skipped="1"/></testsuites>'
    )
    assert matrix.Counts.of(report) == matrix.Counts(passed=7, skipped=4, failed=3)


def test_all_tools_but_torch_are_fixed() -> None:
    constraints = (ROOT / "constraints.txt").read_text()
    found = matrix.tools(constraints)
    assert "torch==" not in found and "numpy==" in found
    assert len(found.splitlines()) == len(constraints.splitlines()) - 1
    assert matrix.tools("torchvision==1\ntorch>=2\n") == "torchvision==1\n"


def test_bounds_are_compared() -> None:
    one = {"a": np.array([1.0, -10.0]), "b": np.array([[1.0]])}
    assert matrix.difference(one, one) == 0.0
    assert matrix.difference(one, one | {"a": np.array([2.0, -10.0])}) == pytest.approx(0.1)
    assert matrix.difference(one, {"a": one["a"]}) == np.inf
    assert matrix.difference(one, one | {"b": np.array([1.0])}) == np.inf
    nan = matrix.difference(one, one | {"b": np.array([[np.nan]])})
    assert not nan < 1.0
