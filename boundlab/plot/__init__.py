"""Pictures of results, with matplotlib (extra ``plot``). Functions take results and, optionally,
the matplotlib Axes to draw in, and return the Axes; style.py is the look of all of them.

What is drawn contains what it stands for: no chord cuts a corner of a set.
"""

from boundlab.plot import extra as _extra  # complains first if matplotlib is missing
from boundlab.plot.curves import curves
from boundlab.plot.relaxation import relaxation
from boundlab.plot.samples import margins, radii
from boundlab.plot.sets import boxes, directions, polygon
from boundlab.plot.style import (
    BROKEN,
    INK,
    LOWER,
    OPEN,
    PROVED,
    UPPER,
    band,
    figure,
    label_ends,
    per_cent,
    save,
    styled,
    use_style,
)
from boundlab.plot.tube import tube

__all__ = [
    "BROKEN", "INK", "LOWER", "OPEN", "PROVED", "UPPER", "band", "boxes", "curves", "directions",
    "figure", "label_ends", "margins", "per_cent", "polygon", "radii", "relaxation", "save",
    "styled", "tube", "use_style",
]  # fmt: skip
del _extra
