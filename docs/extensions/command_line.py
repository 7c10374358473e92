"""The reference of the command line, made of the parsers themselves while the site is built."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from boundlab.commands.table import GROUPS, parsers


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}


class Commands(SphinxDirective):
    """A section for every command: its usage, what it does, its arguments."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        return self.parse_text_to_nodes("\n".join(_page()), allow_section_headings=True)


def _page() -> Iterator[str]:
    """A part for every group of commands, as in ``boundlab --help``."""
    found = parsers()
    for group, rows in GROUPS.items():
        yield from (f"## {group.capitalize()}", "")
        for row in rows:
            yield from _section(row.name, row.help, found[row.name])


def _section(name: str, short: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (f"### boundlab {name}", "", f"*{_plain(short)}*", "")
    for paragraph in (parser.description or "").split("\n\n"):
        yield from (_plain(paragraph), "")
    yield from _literal(parser.format_usage().removeprefix("usage: "))
    yield from (f"```{{program}} boundlab {name}", "```", "")
    for group in parser._action_groups:
        shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        shown = [action for action in shown if not isinstance(action, argparse._HelpAction)]
        if shown:
            yield from (f"**{_plain((group.title or '').capitalize())}**", "")
        for action in shown:
            yield from _argument(action, parser)
    if parser.epilog:
        yield from _literal(parser.epilog)


def _argument(action: argparse.Action, parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    values = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    named = ", ".join(f"{flag} {values}".strip() for flag in action.option_strings)
    text = formatter._expand_help(action) if action.help else ""
    yield f"````{{option}} {named or action.metavar or action.dest}"
    yield from (_plain(text), "````", "")


def _literal(text: str) -> Iterator[str]:
    yield from ("```text", *text.strip("\n").splitlines(), "```", "")


def _plain(text: str) -> str:
    """Text that means nothing to Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", " ".join(text.split()))
