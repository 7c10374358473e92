"""Bounds that hold in floating point: what is rounded, and the room that is left for it."""

from boundlab.arithmetic.arithmetic import Arithmetic, Format, find_arithmetic
from boundlab.arithmetic.rows import Absolute, Exact, Pointwise, Relative, Row, Sums
from boundlab.arithmetic.table import rounds

__all__ = [
    "Absolute",
    "Arithmetic",
    "Exact",
    "Format",
    "Pointwise",
    "Relative",
    "Row",
    "Sums",
    "find_arithmetic",
    "rounds",
]
