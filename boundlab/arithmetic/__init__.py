"""Bounds that hold in floating point: what is rounded, and the room that is left for it."""

from boundlab.arithmetic.arithmetic import Arithmetic, Format, find_arithmetic
from boundlab.arithmetic.rows import Derived, Exact, Pointwise, Row, Sums
from boundlab.arithmetic.table import rounds

__all__ = [
    "Arithmetic",
    "Derived",
    "Exact",
    "Format",
    "Pointwise",
    "Row",
    "Sums",
    "find_arithmetic",
    "rounds",
]
