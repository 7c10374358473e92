"""The documentation's examples run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from boundlab.cli import main
from boundlab.commands.table import parser_of_all, parsers
from tests.helpers.documentation import ROOT, commands, mentioned, name_of, pages, program

PAGES = pages()
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def run(argv: list[str]) -> None:
    assert main(argv) == 0, f"boundlab {' '.join(argv)}"


def write(name: str, text: str) -> None:
    Path(name).write_text(text)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    torch.manual_seed(0)
    given = {"__name__": "docs", "run": run, "write": write}
    exec(compile(program(page), page.name, "exec"), given)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_can_be_parsed(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in commands(page.read_text()):
        try:
            parser_of_all().parse_args(argv)
        except SystemExit:
            pytest.fail(f"boundlab {' '.join(argv)}: {capsys.readouterr().err}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_the_text_exist(page: Path) -> None:
    known = parsers()
    for command, flags in mentioned(page.read_text()):
        assert command in known, f"boundlab {command}"
        unknown = [flag for flag in flags if flag not in known[command]._option_string_actions]
        assert not unknown, f"boundlab {command} {unknown}"


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Imported, as other tests do: an operator that is defined twice in a process is another."""
    importlib.import_module(f"examples.{example}").main()
    assert capsys.readouterr().out


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
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
    names |= {f"{path.name}/" for path in (ROOT / "docs").iterdir() if list(path.glob("*.md"))}
    assert not names - found


def test_public_names_are_documented() -> None:
    import boundlab

    reference = "".join(page.read_text() for page in (ROOT / "docs/reference/python").glob("*.md"))
    for name in boundlab.__all__:
        assert getattr(boundlab, name).__doc__, name
        direct = rf"^\.\. auto(function|class):: boundlab\.{name}$"
        module = getattr(boundlab, name).__module__
        whole = rf"^\.\. automodule:: {re.escape(module)}$"
        assert re.search(f"{direct}|{whole}", reference, re.MULTILINE), name
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


def test_every_program_is_in_the_gallery() -> None:
    shown = (ROOT / "docs/gallery/programs.md").read_text()
    for example in EXAMPLES:
        assert f"```{{literalinclude}} ../../examples/{example}.py" in shown, example


def test_the_readme_can_be_read_as_it_is() -> None:
    """In a terminal, or in an editor of ordinary width; rows of tables cannot be broken."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
