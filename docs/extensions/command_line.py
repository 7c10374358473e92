"""The reference of the command line, made of the parsers themselves while the site is built."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from boundlab.cli import _parser


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}


class Commands(SphinxDirective):
    """A section for every command: its usage, what it does, its arguments."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        text = "\n".join(line for command in commands() for line in _section(*command))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def commands() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Name, short help and parser of every command, in the order of ``boundlab --help``."""
    for action in _parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for row in action._choices_actions:
                yield row.dest, row.help or "", action.choices[row.dest]


def _section(name: str, short: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (f"## boundlab {name}", "", f"**{_plain(short)}**", "")
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
    first, *others = text.strip("\n").splitlines()
    rest = textwrap.indent(textwrap.dedent("\n".join(others)), "    ")
    yield from ("```text", first, *rest.splitlines(), "```", "")


def _plain(text: str) -> str:
    """Text that means nothing to Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", " ".join(text.split()))
