"""Balls by the names of their norms."""

from __future__ import annotations

from boundlab.defaults import norm_named
from boundlab.regions.balls import L1, L2
from boundlab.regions.boxes import Linf

__all__ = ["NORMS", "norm_named"]

NORMS: dict[str, type[Linf] | type[L2] | type[L1]] = {"inf": Linf, "2": L2, "1": L1}
