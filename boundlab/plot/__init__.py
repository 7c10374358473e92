"""Pictures of results, with matplotlib (extra ``plot``). Functions take results and, optionally,
the matplotlib Axes to draw in, and return the Axes; style.py is the look of all of them.

What is drawn contains what it stands for: no chord cuts a corner of a set.
"""

from boundlab.plot import extra as _extra  # complains first if matplotlib is missing
from boundlab.plot.style import figure, save, style, use_style

__all__ = ["figure", "save", "style", "use_style"]
del _extra
