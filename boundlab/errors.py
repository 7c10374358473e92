"""Everything boundlab raises on purpose, rooted at :class:`BoundlabError`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(text: str, options: Iterable[str]) -> str:
    """`` Did you mean 'option'?`` for the first option that begins with a text, or else the one
    that is most like it, whatever the case; empty if there is none."""
    by_small = {option.lower(): option for option in options}
    small = text.lower()
    close = [option for option in by_small if small and option.startswith(small)]
    close += difflib.get_close_matches(small, by_small, 1)
    return f" Did you mean '{by_small[close[0]]}'?" if close else ""


class BoundlabError(Exception):
    """The root of all errors that boundlab raises on purpose."""


class ArgumentError(BoundlabError, ValueError):
    """An argument is of the wrong kind, shape, type or value; the message says what was
    expected."""


class CaptureError(BoundlabError):
    """The model could not be turned into a graph."""


class UnsupportedOperator(BoundlabError, NotImplementedError):
    """The graph applies an operator without a rule to a perturbed value."""


class MixedSamples(BoundlabError):
    """An operator lets the samples of a batch influence each other."""


class DomainError(BoundlabError, ArithmeticError):
    """An interval reaches a place where the operator is not defined."""


class TimeLimit(BoundlabError, TimeoutError):
    """A question takes longer than it may."""


class MemoryLimit(BoundlabError, MemoryError):
    """Not even one row of coefficients fits the memory budget."""


class Contradiction(BoundlabError):
    """Something is both proved and falsified: a bug, never the user's fault."""
