"""Charts as SVG text that need nothing but the page they stand in: curves, columns, cross-sections.

Colours are the custom properties of the page, so that charts follow its light or dark theme. Kinds
are classes that the style of the page colours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from torch import Tensor

from boundlab.commands.cuts import Cut

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 16, 50
LABELS = 146
"""Room at the right for the names of curves."""
APART = 15.0
"""Units of the picture between two names of curves."""
NAMES = 12
"""Names that find room below columns."""


def number(value: float, form: str = ".3g") -> str:
    """A number for people: three significant digits, or another format."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return format(value, form)


def brief(value: float) -> str:
    """A number for people in a narrow place: two significant digits, or whole."""
    if 10 <= abs(value) < 10_000:
        return f"{value:.0f}"
    return number(value, ".2g")


def percent(value: float) -> str:
    return f"{100 * value:.3g}%"


def ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers in [low, high], zero among them if it lies there."""
    raw = max(high - low, 1e-12) / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.99)
    return [
        round(i * step, 12) + 0.0
        for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def whole_ticks(most: int) -> list[int]:
    """Round whole numbers in [0, most]."""
    return sorted({int(tick) for tick in ticks(0.0, float(most)) if tick == int(tick)})


# -- pieces of pictures ----------------------------------------------------------------------------


def begin(kind: str, width: float, height: float, label: str) -> str:
    """The begin of a chart; label: what it shows, for readers who do not see it."""
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}">'
    )


def rule(left: float, right: float, height: float, kind: str = "tick") -> str:
    """A horizontal line."""
    return (
        f'<line class="{kind}" x1="{left:.1f}" x2="{right:.1f}" y1="{height:.1f}" '
        f'y2="{height:.1f}"/>'
    )


def text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    """A line of text; more: other attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(words)}</text>'


@dataclass(frozen=True)
class Frame:
    """A picture with linear axes.

    x, y: the values at both ends of each axis. room: units of the picture that stay free at the
    right.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    width: float = WIDTH
    height: float = HEIGHT
    room: float = RIGHT

    def across(self, value: float) -> float:
        low, high = self.x
        part = (value - low) / max(high - low, 1e-12)
        return LEFT + part * (self.width - LEFT - self.room)

    def up(self, value: float) -> float:
        low, high = self.y
        part = (value - low) / max(high - low, 1e-12)
        return self.height - BOTTOM - part * (self.height - TOP - BOTTOM)

    def vertical(
        self, name: str, places: Sequence[float], form: Callable[[float], str] = number
    ) -> list[str]:
        """Horizontal lines with their values, and the name of the axis."""
        left, right = self.across(self.x[0]), self.across(self.x[1])
        parts = []
        for place in places:
            kind = "zero" if place == 0 else "tick"
            parts.append(rule(left, right, self.up(place), kind))
            parts.append(text(LEFT - 8, self.up(place) + 4, form(place), "end"))
        middle = (TOP + self.height - BOTTOM) / 2
        turned = f'class="axis" transform="rotate(-90 14 {middle:.1f})"'
        return [*parts, text(14, middle, name, more=turned)]

    def horizontal(self, name: str, places: Sequence[float]) -> list[str]:
        """Values below the picture, and the name of the axis."""
        bottom = self.height - BOTTOM
        parts = [text(self.across(place), bottom + 17, number(place)) for place in places]
        return [*parts, self.below(name)]

    def below(self, name: str) -> str:
        """The name of the horizontal axis."""
        middle = (self.across(self.x[0]) + self.across(self.x[1])) / 2
        return text(middle, self.height - 8, name, more='class="axis"')


# -- curves ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Shares by radius. dots: whether the points are what is known, and lines between them only
    lead the eye; without them the line itself is what is known."""

    kind: str
    label: str
    points: Sequence[tuple[float, float]]
    dots: bool = True


def share_chart(curves: Sequence[Curve], name: str, label: str) -> str:
    """Shares (0 ... 1) against radii, each curve with its label at its end. name: of the horizontal
    axis."""
    high = max((radius for curve in curves for radius, _ in curve.points), default=0.0) or 1.0
    frame = Frame((0.0, high), (0.0, 1.0), room=LABELS)
    parts = [begin("shares", WIDTH, HEIGHT, label)]
    parts += frame.vertical("share of all images", ticks(0.0, 1.0), percent)
    parts += frame.horizontal(name, ticks(0.0, high))
    ends = [frame.up(curve.points[-1][1]) for curve in curves]
    for curve, place in zip(curves, _apart(ends), strict=True):
        places = [(frame.across(radius), frame.up(share)) for radius, share in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline class="line {curve.kind}" points="{path}"/>')
        if curve.dots:
            parts += [
                _dot(curve, at, *point) for at, point in zip(places, curve.points, strict=True)
            ]
        (x, y), right = places[-1], frame.across(high)
        parts.append(f'<path class="leader" d="M {x:.1f} {y:.1f} L {right + 8:.1f} {place:.1f}"/>')
        parts.append(text(right + 12, place + 4, curve.label, "start", f'class="{curve.kind}"'))
    return "".join(parts) + "</svg>"


def _dot(curve: Curve, at: tuple[float, float], radius: float, share: float) -> str:
    title = f"<title>{escape(curve.label)} at {number(radius)}: {share:.1%}</title>"
    return (
        f'<circle class="dot {curve.kind}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="3.5">{title}'
        "</circle>"
    )


def _apart(places: Sequence[float]) -> list[float]:
    """Heights near those given, in the same order, that are far enough from each other to be
    written at; those that begin alike stay in the order of the list."""
    order = sorted(range(len(places)), key=lambda k: places[k])
    found = list(places)
    for before, after in itertools.pairwise(order):
        found[after] = max(found[after], found[before] + APART)
    limit = float(HEIGHT - BOTTOM)
    for k in reversed(order):
        found[k] = min(found[k], limit)
        limit = found[k] - APART
    return found


# -- columns ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One kind of what columns count: its label, and a count for each column."""

    kind: str
    label: str
    counts: Sequence[int]


def columns(names: Sequence[str], parts: Sequence[Part], name: str, label: str) -> str:
    """How many images have each of some properties, kinds on top of each other. names: of the
    columns; name: of the horizontal axis."""
    frame = _frame_of_counts(parts, len(names))
    found = [begin("columns", WIDTH, HEIGHT, label), *_count_axis(frame)]
    found += _stacks(frame, parts, names, 0.72)
    every = max(1, math.ceil(len(names) / NAMES))
    for k in range(0, len(names), every):
        found.append(text(frame.across(k + 0.5), HEIGHT - BOTTOM + 17, names[k]))
    return "".join([*found, frame.below(name), "</svg>"])


def binned(edges: Sequence[float], parts: Sequence[Part], name: str, label: str) -> str:
    """How many values lie between edges that are equally far from each other, kinds on top of each
    other."""
    frame = _frame_of_counts(parts, len(edges) - 1)
    low, high = edges[0], edges[-1]
    found = [begin("columns", WIDTH, HEIGHT, label), *_count_axis(frame)]
    ranges = [f"{number(a)} to {number(b)}" for a, b in itertools.pairwise(edges)]
    found += _stacks(frame, parts, ranges, 0.92)
    for tick in ticks(low, high):
        place = frame.across((tick - low) / max(high - low, 1e-12) * (len(edges) - 1))
        found.append(text(place, HEIGHT - BOTTOM + 17, number(tick)))
        if tick == 0 and low < 0:
            line = f'x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
            found.append(f'<line class="zero" {line}/>')
    return "".join([*found, frame.below(name), "</svg>"])


def _frame_of_counts(parts: Sequence[Part], size: int) -> Frame:
    totals = [sum(counts) for counts in zip(*(part.counts for part in parts), strict=True)]
    return Frame((0.0, float(size)), (0.0, float(max(totals, default=0) or 1)))


def _count_axis(frame: Frame) -> list[str]:
    return frame.vertical("images", whole_ticks(int(frame.y[1])))


def _stacks(frame: Frame, parts: Sequence[Part], names: Sequence[str], fill: float) -> list[str]:
    """Columns of equal width, of which bars take a share."""
    found = []
    for k, name in enumerate(names):
        below = 0
        for part in parts:
            count = part.counts[k]
            if not count:
                continue
            left, right = frame.across(k + (1 - fill) / 2), frame.across(k + (1 + fill) / 2)
            top, bottom = frame.up(below + count), frame.up(below)
            found.append(
                f'<rect class="{part.kind}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{right - left:.1f}" height="{bottom - top:.1f}">'
                f"<title>{escape(part.label)}, {escape(name)}: {count}</title></rect>"
            )
            below += count
    return found


def bins(values: Sequence[float], high: float, count: int = 20) -> list[int]:
    """How many values lie in each of so many equal parts of [0, high]; the end belongs to the last
    part."""
    return counted(values, 0.0, high, count)


def counted(values: Sequence[float], low: float, high: float, count: int) -> list[int]:
    """How many values lie in each of so many equal parts of [low, high], ends that are shared
    belonging to the right one; what lies outside is counted by the first or the last part."""
    found = [0] * count
    for value in values:
        place = math.floor((value - low) / (high - low) * count) if high > low else 0
        found[min(max(place, 0), count - 1)] += 1
    return found


# -- linear bounds along a line --------------------------------------------------------------------

CUT_WIDTH, CUT_HEIGHT = 400, 290


def cut_chart(cut: Cut, low: float, high: float, name: str) -> str:
    """The sampled margin between its linear bounds; low, high: the ends of the vertical axis, whose
    name is given."""
    frame = Frame((0.0, 1.0), (low, high), CUT_WIDTH, CUT_HEIGHT)

    def path(values: Tensor) -> str:
        points = zip(cut.place.tolist(), values.tolist(), strict=True)
        return " ".join(f"{frame.across(x):.1f},{frame.up(y):.1f}" for x, y in points)

    label = (
        f"linear bounds by {cut.method}: at least {number(float(cut.lower.min()))}, at most "
        f"{number(float(cut.upper.max()))}; sampled values from {number(float(cut.value.min()))} "
        f"to {number(float(cut.value.max()))}"
    )
    parts = [begin("cut", CUT_WIDTH, CUT_HEIGHT, label)]
    parts += frame.vertical(name, ticks(low, high))
    back = " ".join(reversed(path(cut.upper).split(" ")))
    parts.append(f'<polygon class="band" points="{path(cut.lower)} {back}"/>')
    for kind, values in (("upper", cut.upper), ("lower", cut.lower), ("value", cut.value)):
        parts.append(f'<polyline class="{kind}" points="{path(values)}"/>')
    bottom = CUT_HEIGHT - BOTTOM + 17
    parts.append(text(LEFT, bottom, "one end", "start"))
    parts.append(text(CUT_WIDTH - RIGHT, bottom, "the other end", "end"))
    parts.append(frame.below("along a straight line through the ball"))
    return "".join(parts) + "</svg>"
