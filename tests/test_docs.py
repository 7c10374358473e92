"""The documentation's examples run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    torch.manual_seed(0)
    code = "\n".join(blocks)
    exec(compile(code, page.name, "exec"), {"__name__": "docs"})


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Imported, as other tests do: an operator that is defined twice in a process is another."""
    importlib.import_module(f"examples.{example}").main()
    assert capsys.readouterr().out


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_public_names_are_documented() -> None:
    import boundlab

    for name in boundlab.__all__:
        assert getattr(boundlab, name).__doc__, name
    assert len(boundlab.__all__) <= 40


@pytest.mark.parametrize(
    ("options", "page"), [([], "operators.md"), (["--onnx"], "onnx-operators.md")]
)
def test_the_pages_of_operators_are_up_to_date(options: list[str], page: str) -> None:
    """In a process of its own: the examples above register operators."""
    made = subprocess.run(
        [sys.executable, "-m", "boundlab", "ops", *options, "--markdown"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert made == (ROOT / "docs" / page).read_text(), "run make docs"
