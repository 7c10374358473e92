"""Importing boundlab: the garbage collector pauses, for what imports make stays, and looking
through it again and again would take a fifth of their time."""

from __future__ import annotations

import gc

_was_enabled = gc.isenabled()
gc.disable()


def done() -> None:
    """Let the garbage collector go on, if it was at work before."""
    if _was_enabled:
        gc.enable()
