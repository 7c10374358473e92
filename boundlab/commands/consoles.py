"""Where commands print tables."""

from __future__ import annotations

from rich.console import Console

WIDTH = 130
"""Columns of what is no terminal, such as a file: wide tables stay whole."""


def wide_console() -> Console:
    """The terminal, as wide as it is; what is no terminal is wide enough for any table."""
    console = Console()
    if console.is_terminal:
        return console
    return Console(width=WIDTH)
