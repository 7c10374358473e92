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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_whole(page: Path) -> None:
    """Behind the head of a table comes a line that says so; rows without one are not shown as a
    table."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = ["", *text.splitlines(), ""]
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        if line.startswith("|") and not before.startswith("|"):
            assert re.fullmatch(r"\|[-:| ]+\|", after), f"{page.name}: {line[:60]}"


def test_the_map_has_everything() -> None:
    text = (ROOT / "README.md").read_text().partition("## Where things are")[2]
    found = set(re.findall(r"[\w-]+(?:\.py|/)?", text))
    parts = [path for path in (ROOT / "boundlab").iterdir() if not path.name.startswith("_")]
    names = {f"{path.name}/" for path in parts if path.is_dir()}
    names |= {path.name for path in parts if path.suffix == ".py"}
    names |= {path.name for path in (ROOT / "scripts").glob("*.py")}
    names |= {path.stem for path in PAGES if path.parent.name == "docs"}
    assert not names - found


def test_public_names_are_documented() -> None:
    import boundlab

    for name in boundlab.__all__:
        assert getattr(boundlab, name).__doc__, name
    assert len(boundlab.__all__) <= 45


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
