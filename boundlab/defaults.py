"""What is done where nothing is said, and names that users write. Nothing of torch is needed here:
parsers read it before torch is imported."""

from __future__ import annotations

import re

from boundlab.errors import ArgumentError

COMPLETE = "complete"
"""What verification is called where methods stand."""
TIMEOUT = 60.0
"""Seconds of a verification."""
STEPS, RESTARTS = 40, 2
"""Of attacks: steps of a descent, descents for each sample."""
MOST, TOLERANCE = 1.0, 0.01
"""Of searches for radii: the largest that is asked, how close they come as a share."""
METHODS = ("ibp", "crown-ibp", "crown", "forward+backward")
"""Of certifications."""
EPS = (2 / 255, 8 / 255)
DEMO_RADII = (0.05, 0.1, 0.15)
LAYOUTS = ("chw", "hwc")
"""Orders of the channels, height and width of an image in a file."""
NORMS = ("inf", "2", "1")
NORM_ALIASES = {"infinity": "inf", "∞": "inf", "2.0": "2", "1.0": "1"}


def norm_named(norm: object) -> str:
    """The name in :data:`NORMS` of what users write: "inf", "linf", "L2", or a number."""
    name = re.sub(r"^l[_-]?", "", str(norm).lower())
    name = NORM_ALIASES.get(name, name)
    if name not in NORMS:
        raise ArgumentError(f"norm must be one of {', '.join(map(repr, NORMS))}, not {norm!r}")
    return name
