"""Charts of sweeps as SVG text: instances decided against time, domains, and times of two tools.

Colours are the custom properties of the page, so that charts follow its light or dark theme.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from boundlab.commands.charts import begin, rule, text, whole_ticks

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 46
SIDE = 460
"""Width and height of a scatter plot."""
LEAST = 1e-3
"""Seconds below which times are not told apart."""
UNITS = ("", "k", "M", "G")
"""Thousands, millions, ..., in front of which a number of domains is short."""
APART = 48.0
"""Units of the picture that two labels of an axis are apart at least."""


@dataclass(frozen=True)
class Line:
    """A kind of instances and when each was decided. kind: the class that the page colours."""

    kind: str
    label: str
    seconds: Sequence[float]


@dataclass(frozen=True)
class LogAxis:
    """Places of positive values on a logarithmic axis from ``first`` to ``last``, in units of the
    picture."""

    low: float
    high: float
    first: float
    last: float

    @staticmethod
    def over(values: Sequence[float], first: float, last: float) -> LogAxis:
        """An axis on which all values lie, an eighth of a decade from its ends or more: two round
        values are on it at least."""
        kept = [max(value, LEAST) for value in values] or [1.0]
        low, high = min(kept), max(kept)
        room = max(10**0.125, math.sqrt(6 * low / high))
        return LogAxis(low / room, high * room, first, last)

    def at(self, value: float) -> float:
        part = math.log(max(value / self.low, 1.0)) / math.log(self.high / self.low)
        return self.first + part * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Round values whose labels do not touch: 1, 2 and 5 times powers of ten, or fewer."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            found = [factor * 10.0**power for power in powers for factor in factors]
            found = [value for value in found if self.low <= value <= self.high]
            places = sorted(self.at(value) for value in found)
            gaps = [b - a for a, b in itertools.pairwise(places)]
            if found and min(gaps, default=APART) >= APART:
                return found
        return found[:: max(len(found) // 4, 1)]


def cactus(lines: Sequence[Line], end: float) -> str:
    """How many instances were decided within how many seconds: a staircase for each kind, up to the
    time ``end``."""
    found = [value for line in lines for value in line.seconds]
    across = LogAxis.over([*found, end], LEFT, WIDTH - RIGHT)
    most = max((len(line.seconds) for line in lines), default=0) or 1
    bottom = HEIGHT - BOTTOM
    up = lambda count: bottom - (bottom - TOP) * count / most
    parts = [begin("cactus", WIDTH, HEIGHT, "instances decided against time")]
    for count in whole_ticks(most):
        parts.append(rule(LEFT, WIDTH - RIGHT, up(count)))
        parts.append(text(LEFT - 8, up(count) + 4, str(count), "end"))
    parts += _across(across, bottom)
    parts.append(text((LEFT + WIDTH) / 2, HEIGHT - 6, "seconds of an instance"))
    for line in lines:
        height, path = up(0), f"M {across.first:.1f} {up(0):.1f}"
        for count, seconds in enumerate(sorted(line.seconds), 1):
            height = up(count)
            path += f" H {across.at(seconds):.1f} V {height:.1f}"
        path += f" H {across.last:.1f}"
        title = f"<title>{escape(line.label)}: {len(line.seconds)}</title>"
        parts.append(f'<path class="line {line.kind}" d="{path}">{title}</path>')
    return "".join(parts) + "</svg>"


def decades(parts: Sequence[tuple[str, str, Sequence[int]]]) -> str:
    """How many instances took 1, up to 10, up to 100, ... domains: a bar for each, of the kinds
    given, each with its class, its label and the domains of its instances."""
    places = [[_decade(value) for value in values] for _, _, values in parts]
    last = max((place for one in places for place in one), default=0)
    totals = [sum(one.count(k) for one in places) for k in range(last + 1)]
    most, bottom = max(totals) or 1, HEIGHT - BOTTOM
    step = (WIDTH - LEFT - RIGHT) / (last + 1)
    found = [begin("decades", WIDTH, HEIGHT, "how many instances took how many domains")]
    for tick in whole_ticks(most):
        height = bottom - (bottom - TOP) * tick / most
        found.append(rule(LEFT, WIDTH - RIGHT, height))
        found.append(text(LEFT - 8, height + 4, str(tick), "end"))
    for k in range(last + 1):
        top = float(bottom)
        left = LEFT + k * step
        for (kind, label, _), one in zip(parts, places, strict=True):
            size = (bottom - TOP) * one.count(k) / most
            top -= size
            found.append(
                f'<rect class="{kind}" x="{left + 0.14 * step:.1f}" y="{top:.1f}" '
                f'width="{0.72 * step:.1f}" height="{size:.1f}">'
                f"<title>{escape(label)}, {_range(k)} domains: {one.count(k)}</title></rect>"
            )
        found.append(text(left + step / 2, bottom + 17, _range(k)))
    found.append(text((LEFT + WIDTH) / 2, HEIGHT - 6, "domains of an instance"))
    return "".join(found) + "</svg>"


@dataclass(frozen=True)
class Point:
    """An instance in a scatter plot: seconds of both tools, None where it was not decided."""

    across: float | None
    up: float | None
    kind: str
    label: str


def scatter(points: Sequence[Point], across: str, up: str) -> str:
    """Seconds of one tool against seconds of the other; what one leaves open lies on the border
    beyond all times. across, up: names of the tools."""
    held = [value for one in points for value in (one.across, one.up) if value is not None]
    inner, bottom = SIDE - 44, SIDE - BOTTOM
    x_axis, y_axis = LogAxis.over(held, LEFT, inner), LogAxis.over(held, bottom, 44)
    parts = [begin("scatter", SIDE, SIDE, f"seconds of {across} and of {up}")]
    for tick in x_axis.ticks():
        place, height = x_axis.at(tick), y_axis.at(tick)
        parts.append(rule(LEFT, inner, height))
        parts.append(
            f'<line class="tick" x1="{place:.1f}" x2="{place:.1f}" y1="44" y2="{bottom}"/>'
        )
        parts.append(text(place, bottom + 17, f"{tick:g}"))
        parts.append(text(LEFT - 8, height + 4, f"{tick:g}", "end"))
    parts.append(f'<line class="equal" x1="{LEFT}" y1="{bottom}" x2="{inner}" y2="44"/>')
    right, top = inner + 22, 22
    parts.append(f'<line class="open" x1="{right}" x2="{right}" y1="44" y2="{bottom}"/>')
    parts.append(f'<line class="open" x1="{LEFT}" x2="{inner}" y1="{top}" y2="{top}"/>')
    parts.append(text(right, 36, "open"))
    parts.append(text(LEFT - 8, top + 4, "open", "end"))
    for one in points:
        x, y = float(right), float(top)
        if one.across is not None:
            x = x_axis.at(one.across)
        if one.up is not None:
            y = y_axis.at(one.up)
        parts.append(
            f'<circle class="{one.kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
            f"<title>{escape(one.label)}</title></circle>"
        )
    parts.append(text((LEFT + inner) / 2, SIDE - 6, f"seconds of {across}"))
    turned = f'transform="rotate(-90 12 {(bottom + 44) / 2:.1f})"'
    parts.append(text(12, (bottom + 44) / 2, f"seconds of {up}", more=turned))
    return "".join(parts) + "</svg>"


# -- parts -----------------------------------------------------------------------------------------


def _across(axis: LogAxis, bottom: float) -> list[str]:
    """Ticks of a horizontal axis with their labels."""
    parts = []
    for tick in axis.ticks():
        place = axis.at(tick)
        line = f'x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{bottom}"'
        parts.append(f'<line class="tick" {line}/>')
        parts.append(text(place, bottom + 17, f"{tick:g}"))
    return parts


def _decade(domains: int) -> int:
    """0 for at most one domain, 1 for 2 to 10, 2 for 11 to 100, ..."""
    return len(str(max(domains, 1) - 1)) * (domains > 1)


def _range(place: int) -> str:
    """The domains that :func:`_decade` puts into a place."""
    if place == 0:
        return "0 or 1"
    return f"to {10 ** (place % 3)}{UNITS[min(place // 3, len(UNITS) - 1)]}"
