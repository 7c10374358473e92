"""Where commands print tables."""

from __future__ import annotations

from rich.console import Console

WIDTH = 130
"""Columns of what is no terminal, such as a file: wide tables stay whole."""


def widened(console: Console) -> Console:
    """A console, wide enough for any table if it is no terminal."""
    if not console.is_terminal:
        console.width = WIDTH
    return console
