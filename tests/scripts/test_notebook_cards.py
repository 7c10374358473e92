"""docs/extensions/notebooks.py makes a card of every notebook of the gallery."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "gallery").glob("*.ipynb"))


def test_title_and_first_sentence() -> None:
    cards = _load()
    text = "# A *title*\n\nSome `code`, a [link](there.md):\nand more. Another sentence.\n"
    assert cards.beginning(text) == ("A *title*", "Some code, a link:")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_has_a_card(notebook: Path) -> None:
    card = _load().card(notebook)
    assert f'href="{notebook.stem}.html"' in card and "data:image/svg+xml;base64," in card
    title, text = card.partition("<strong>")[2].split("</strong></a><span>")
    assert 5 < len(title) < 80 and 10 < len(text) < 200


def _load():  # type: ignore[no-untyped-def]  # a module that Sphinx loads by its path
    pytest.importorskip("sphinx", reason="needs the extra docs")
    spec = importlib.util.spec_from_file_location("cards", ROOT / "docs/extensions/notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
