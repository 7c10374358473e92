"""scripts/check_site.py finds links that lead nowhere, and what comes from other hosts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_site", ROOT / "scripts/check_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_site = _load()


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="b.html">there</a>', None),
        ('<a href="b.html#end">there</a>', None),
        ('<a href="#here" id="here">itself</a>', None),
        ('<a href="https://example.org/none">elsewhere</a>', None),
        ('<a href="c.html">nowhere</a>', "a.html links to c.html"),
        ('<a href="b.html#middle">nowhere</a>', "a.html links to b.html#middle"),
        ('<img src="none.svg">', "a.html links to none.svg"),
        (
            '<script src="https://example.org/s.js"></script>',
            "a.html needs https://example.org/s.js to be shown",
        ),
    ],
)
def test_links(body: str, fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<h1 id="end">the end</h1>')
    assert list(check_site.faults(tmp_path)) == ([] if fault is None else [fault])
    assert check_site.main([str(tmp_path)]) == (fault is not None)


def test_a_site_without_pages(tmp_path: Path) -> None:
    assert check_site.main([str(tmp_path)]) == 1
