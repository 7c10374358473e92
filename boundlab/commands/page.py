"""What the pages of the commands share: their frame, style and script, tables, and how a page was
made."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

import torch

from boundlab.version import VERSION


def asset(name: str) -> str:
    """The text of a file that ships beside this one."""
    return (files("boundlab.commands") / name).read_text(encoding="utf-8")


STYLE = asset("page.css")
LIST_SCRIPT = asset("list.js")

HATCHED = (
    '<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>'
    '<pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect class="paper" width="6" height="6"/>'
    '<rect class="ink" width="3" height="6"/></pattern></defs></svg>'
)
"""What fills the bars of open images: told from the others without colours."""


def document(title: str, parts: Iterable[str], style: str = "", script: str = "") -> str:
    """A page of HTML that needs nothing but itself. parts: what stands in it, empty ones left out;
    style, script: besides those that all pages have."""
    body = "\n".join(part for part in parts if part)
    run = ""
    if script:
        run = f"<script>{script}</script>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>\n{STYLE}{style}</style></head><body><main>\n{body}\n</main>"
        f"{run}</body></html>\n"
    )


def footer(text: str) -> str:
    """The last lines of a page: who made it, and a text in HTML."""
    return f"<footer>Made by boundlab {escape(VERSION)}. {text}</footer>"


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], last: Sequence[str] = (), name: str = ""
) -> str:
    """A table of cells of HTML; the first of a row is its name. last: a row that sums up; name: of
    the table, for readers who do not see it."""
    body = "".join(_row(row) for row in rows)
    foot = ""
    if last:
        foot = f"<tfoot>{_row(last)}</tfoot>"
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return (
        f'<div class="scroll"><table class="summary"{labelled(name)}>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table></div>"
    )


def breakable(name: str) -> str:
    """A name in HTML that may be broken behind a plus sign."""
    return escape(name).replace("+", "+<wbr>")


def labelled(name: str) -> str:
    """The attribute that names an element for readers who do not see it."""
    if not name:
        return ""
    return f' aria-label="{escape(name)}"'


def _row(cells: Sequence[str]) -> str:
    name, *others = cells
    found = f'<tr><th scope="row">{name}</th>'
    kinds = {"0": ' class="zero"'}
    return found + "".join(f"<td{kinds.get(cell, '')}>{cell}</td>" for cell in others) + "</tr>"


def meter(part: float) -> str:
    """A bar and the share that it shows."""
    bar = f'<span class="meter"><i style="width:{100 * part:.1f}%"></i></span>'
    return f'{bar}<span class="share">{part:.1%}</span>'


def keys(kinds: Iterable[tuple[str, str]]) -> str:
    """What the colours of a chart mean: class and text of each."""
    boxes = "".join(
        f'<span><i class="box {kind}"></i>{escape(text)}</span>' for kind, text in kinds
    )
    return f'<p class="soft keys">{boxes}</p>'


def choice(name: str, options: Mapping[str, str], label: str) -> str:
    """A list to choose from, by the values and texts of its options."""
    texts = "".join(
        f'<option value="{escape(value)}">{escape(text)}</option>'
        for value, text in options.items()
    )
    return f'<select name="{name}" aria-label="{escape(label)}">{texts}</select>'


# -- how it was made -------------------------------------------------------------------------------


def made_section(made: Sequence[tuple[str, str]]) -> str:
    """How a page was made, as pairs of words."""
    if not made:
        return ""
    facts = "".join(
        f"<dt>{escape(what)}</dt><dd><code>{escape(value)}</code></dd>" for what, value in made
    )
    return f'<section><h2>How it was made</h2><dl class="made">{facts}</dl></section>'


def how_made(
    command: str, read: Mapping[str, str], packages: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """The command, what it read, and the versions of what took part, in words. read: what was read,
    in words, by what it is; packages: others that take part if they are installed."""
    found = [("Command", command), *read.items()]
    found += [
        ("boundlab", VERSION),
        ("torch", str(torch.__version__)),
        ("Python", platform.python_version()),
    ]
    found += [(name, _installed(name)) for name in packages]
    found.append(("Machine", f"{platform.system()} {platform.machine()}"))
    found.append(("Written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
    return found


def with_digest(path: Path, name: str = "") -> str:
    """A file by its path, or by another name, and the SHA-256 of what it holds."""
    with path.open("rb") as file:
        return f"{name or path}, SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
