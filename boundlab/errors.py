"""Everything boundlab raises on purpose, rooted at :class:`BoundlabError`."""

from __future__ import annotations


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
