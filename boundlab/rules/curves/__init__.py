"""Lower and upper lines of a function of one variable, from where it is convex, concave or linear.

A :class:`Curve` cuts the real line at ``breaks`` into pieces of one kind each. Everything below is
written for lower lines: an upper line of f is minus a lower line of -f, whose convex pieces are the
concave ones of f.

The slope is that of the supporting line of the convex envelope of f at the midpoint m of [l, u],
which is the line of least area under f. The intercept for a slope a is min (f(x) - a x) over [l,
u], attained at l, at u, at a break, at a jump, or inside a convex piece where f' = a: finitely many
points, so the line is checked, not hoped for.
"""

from boundlab.rules.curves.curve import Curve, Function, Line, interval
from boundlab.rules.curves.families import lower_family
from boundlab.rules.curves.lower_lines import lines
from boundlab.rules.curves.tangents import ROOM

__all__ = ["ROOM", "Curve", "Function", "Line", "interval", "lines", "lower_family"]
