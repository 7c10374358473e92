"""Balls by the names of their norms."""

from __future__ import annotations

import re

from boundlab.errors import ArgumentError
from boundlab.regions.balls import L1, L2
from boundlab.regions.boxes import Linf

NORMS: dict[str, type[Linf] | type[L2] | type[L1]] = {"inf": Linf, "2": L2, "1": L1}
ALIASES = {"infinity": "inf", "∞": "inf", "2.0": "2", "1.0": "1"}


def norm_named(norm: object) -> str:
    """The name in :data:`NORMS` of what users write: "inf", "linf", "L2", or a number."""
    name = re.sub(r"^l[_-]?", "", str(norm).lower())
    name = ALIASES.get(name, name)
    if name not in NORMS:
        raise ArgumentError(f"norm must be one of {', '.join(map(repr, NORMS))}, not {norm!r}")
    return name
