"""Importing this complains in one line, with the command that helps, if matplotlib is missing."""

from boundlab.errors import ArgumentError

try:
    import matplotlib as matplotlib
except ImportError:
    raise ArgumentError("drawing needs matplotlib: pip install 'boundlab[plot]'") from None
