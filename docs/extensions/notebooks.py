"""The notebooks of a folder as cards: the first picture, the title and the first sentence."""

from __future__ import annotations

import base64
import json
import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

SVG = "image/svg+xml"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("notebooks", Notebooks)
    return {"parallel_read_safe": True}


class Notebooks(SphinxDirective):
    """A card for every notebook that lies beside the page."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        folder = Path(self.env.doc2path(self.env.docname)).parent
        made = "\n".join(card(path) for path in sorted(folder.glob("*.ipynb")))
        return [nodes.raw("", f'<ul class="cards">\n{made}\n</ul>', format="html")]


def card(notebook: Path) -> str:
    """A link to the page of a notebook, around what is seen of it."""
    cells = json.loads(notebook.read_text())["cells"]
    title, text = beginning("".join(cells[0]["source"]))
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    drawn = ["".join(one["data"][SVG]) for one in outputs if SVG in one.get("data", {})]
    packed = base64.b64encode(drawn[0].encode()).decode()
    return (
        f'<li><a href="{notebook.stem}.html">'
        f'<img alt="" src="data:{SVG};base64,{packed}"><strong>{escape(title)}</strong></a>'
        f"<span>{escape(text)}</span></li>"
    )


def beginning(markdown: str) -> tuple[str, str]:
    """The title of a page and its first sentence, without marks."""
    head, _, rest = markdown.partition("\n")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", rest).replace("`", "").replace("*", "")
    first = re.split(r"(?<=[.?!:])\s", " ".join(plain.split()), maxsplit=1)[0]
    return head.lstrip("# "), first
