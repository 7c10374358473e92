"""What a package index shows of boundlab, and files that must say the same."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from boundlab.version import VERSION

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_of_boundlab", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


setup = _setup()


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("see [docs/a.md](docs/a.md#b).", "see docs/a.md."),
        ("[how](docs/a.md#b), [there](#below)", "how (docs/a.md), there"),
        ("[paper](https://example.org/a#b)", "[paper](https://example.org/a#b)"),
        ("![bounds](docs/a.png)\ntext", "text"),
        ('<img alt="a" src="docs/a.png">\ntext', "text"),
        ("![b](https://example.org/a.png)", "![b](https://example.org/a.png)"),
        ("two [li\nnes](docs/a.md)", "two li\nnes (docs/a.md)"),
        ("[`a`](docs/a.md) and [`docs/b.md`](docs/b.md)", "`a` (docs/a.md) and `docs/b.md`"),
        ("```sh\n[a](b)\n```\n[a](b)", "```sh\n[a](b)\n```\na (b)"),
        ("`x[0](y)` and\n\n    x[0](y)\n", "`x[0](y)` and\n\n    x[0](y)"),
    ],
)
def test_pages_that_stand_alone(given: str, made: str) -> None:
    assert setup.standing_alone(given) == f"{made}\n\n{setup.NOTE}"


def test_the_readme_of_the_package_has_no_link_to_a_file() -> None:
    page = (ROOT / "README.md").read_text()
    made = setup.standing_alone(page)
    targets = re.findall(
        r"\]\(([^)]+)\)", re.sub(r"```.*?```|`[^`\n]+`", "", made, flags=re.DOTALL)
    )
    assert targets and all(target.startswith("https://") for target in targets)
    code = re.findall(r"```.*?```", page, re.DOTALL)
    assert code and code == re.findall(r"```.*?```", made, re.DOTALL)
    assert "(docs/data.md)" in made


def test_the_guide_for_contributors_leads_somewhere() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for target in re.findall(r"\]\(([^)#:]+)", page) + re.findall(
        r"`((?:tests|boundlab)/[^`]*)`", page
    ):
        assert (ROOT / target).exists(), target
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)", page)) <= targets


def test_versions_are_the_same_everywhere() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == VERSION


def test_what_is_documented_can_be_installed() -> None:
    """The extras that messages and pages name."""
    texts = [p for folder in ("boundlab", "docs") for p in (ROOT / folder).rglob("*.[pm][yd]")]
    pages = "\n".join(path.read_text() for path in [*texts, ROOT / "README.md"])
    named = set(re.findall(r"boundlab\[([\w,-]+)\]", pages)) | set(
        re.findall(r"'\.\[(\w+)\]'", pages)
    )
    extras = {extra for names in named for extra in names.split(",")}
    assert {"data", "onnx", "parquet", "plot", "ray", "vnnlib"} <= extras
    assert extras <= set(PROJECT["optional-dependencies"])


def test_no_address_is_made_up() -> None:
    """There is none to give: neither of a repository nor of a person."""
    assert "urls" not in PROJECT
    assert all(set(author) == {"name"} for author in PROJECT["authors"])
    assert "@" not in (ROOT / "CITATION.cff").read_text()
