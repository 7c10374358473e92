"""Small pictures as text: PNG images and SVG charts that need nothing but the page they stand in.

Colours are the custom properties of the page, so that charts follow its light or dark theme.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from html import escape

import numpy as np
from torch import Tensor

from boundlab.commands.cuts import Cut


def png(image: Tensor, low: float, high: float) -> str | None:
    """A data URI of an image (H, W), (1, H, W) or (3, H, W) whose values low ... high become black
    ... white; None for other shapes."""
    if image.dim() == 2:
        image = image[None]
    if image.dim() != 3 or image.shape[0] not in (1, 3) or min(image.shape[1:]) < 2:
        return None
    scaled = (image.double() - low) / max(high - low, 1e-12)
    # (H, W, channels)
    pixels = (scaled.clamp(0, 1) * 255).round().permute(1, 2, 0).numpy().astype(np.uint8)
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # filter 0 before every row
    colour_type = {1: 0, 3: 2}[channels]  # grey, or red, green and blue
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(rows, 9))
        + _chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def number(value: float, form: str = ".3g") -> str:
    """A number for people: three significant digits, or another format."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return format(value, form)


# -- margins by class ------------------------------------------------------------------------------

BAR_WIDTH, BAR_HEIGHT = 200, 44
LABEL_HEIGHT = 11


def margin_bars(margins: Sequence[float], classes: Sequence[str], low: float, high: float) -> str:
    """One bar per class: above the line where the margin's lower bound is positive, below it
    otherwise.

    low <= 0 < high: the ends of the axis. What lies beyond is cut there; what is not a number
    counts as below.
    """
    step = BAR_WIDTH / max(len(margins), 1)
    line = BAR_HEIGHT * high / (high - low)
    parts = [
        f'<svg class="bars" viewBox="0 0 {BAR_WIDTH} {BAR_HEIGHT + LABEL_HEIGHT}" role="img" '
        'aria-label="margins by class">'
    ]
    for i, (margin, name) in enumerate(zip(margins, classes, strict=True)):
        value = low if math.isnan(margin) else min(max(margin, low), high)
        size = max(BAR_HEIGHT * abs(value) / (high - low), 0.8)
        kind, top = "bad", line
        if margin > 0:
            kind, top = "good", line - size
        place = (
            f'x="{(i + 0.15) * step:.1f}" y="{top:.1f}" '
            f'width="{0.7 * step:.1f}" height="{size:.1f}"'
        )
        parts.append(
            f'<rect class="{kind}" {place}><title>class '
            f"{escape(name)}: "
            f"{number(margin)}</title></rect>"
        )
        parts.append(
            f'<text x="{(i + 0.5) * step:.1f}" '
            f'y="{BAR_HEIGHT + LABEL_HEIGHT - 2}">{escape(name)}</text>'
        )
    parts.append(f'<line x1="0" x2="{BAR_WIDTH}" y1="{line:.1f}" y2="{line:.1f}"/></svg>')
    return "".join(parts)


# -- linear bounds along a line --------------------------------------------------------------------

CUT_WIDTH, CUT_HEIGHT = 340, 230
LEFT, RIGHT = 44, 8
TOP, BOTTOM = 10, 34


def cut_chart(cut: Cut, low: float, high: float) -> str:
    """The sampled margin between its linear bounds; low, high: the ends of the vertical axis."""
    span = max(high - low, 1e-12)

    def at(place: float, value: float) -> tuple[float, float]:
        return LEFT + place * (CUT_WIDTH - LEFT - RIGHT), TOP + (high - value) / span * (
            CUT_HEIGHT - TOP - BOTTOM
        )

    def path(values: Tensor) -> str:
        points = (
            at(place, value)
            for place, value in zip(cut.place.tolist(), values.tolist(), strict=True)
        )
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)

    parts = [
        f'<svg class="cut" viewBox="0 0 {CUT_WIDTH} {CUT_HEIGHT}" role="img" '
        f'aria-label="linear bounds by {escape(cut.method)}">'
    ]
    for tick in ticks(low, high):
        (x1, y), (x2, _) = at(0, tick), at(1, tick)
        kind = "zero" if tick == 0 else "tick"
        parts.append(
            f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{number(tick)}</text>'
        )
    back = " ".join(reversed(path(cut.upper).split(" ")))
    parts.append(f'<polygon class="band" points="{path(cut.lower)} {back}"/>')
    for kind, values in (("upper", cut.upper), ("lower", cut.lower), ("value", cut.value)):
        parts.append(f'<polyline class="{kind}" points="{path(values)}"/>')
    bottom = CUT_HEIGHT - BOTTOM + 16
    parts.append(
        f'<text x="{LEFT}" y="{bottom}">best end</text><text x="{CUT_WIDTH - RIGHT}" '
        f'y="{bottom}" text-anchor="end">worst end</text>'
    )
    parts.append("</svg>")
    return "".join(parts)


def ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers in [low, high], zero among them if it lies there."""
    raw = max(high - low, 1e-12) / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.99)
    return [
        round(i * step, 12) + 0.0 for i in range(math.ceil(low / step), math.floor(high / step) + 1)
    ]


# -- how many values are where ---------------------------------------------------------------------

HISTOGRAM_WIDTH, HISTOGRAM_HEIGHT = 640, 220


def bins(values: Sequence[float], high: float, count: int = 20) -> list[int]:
    """How many values lie in each of so many equal parts of [0, high]; the end belongs to the last
    part."""
    found = [0] * count
    for value in values:
        place = int(value / high * count) if high > 0 else 0
        found[min(place, count - 1)] += 1
    return found


def histogram(parts: Sequence[tuple[str, Sequence[int]]], high: float) -> str:
    """Counts in equal parts of [0, high], several kinds side by side; each kind: the class of its
    bars, which the style of the page colours, and the counts."""
    most = max((max(counts) for _, counts in parts), default=0) or 1
    number_of = len(parts[0][1])
    bottom = HISTOGRAM_HEIGHT - BOTTOM
    step = (HISTOGRAM_WIDTH - LEFT - RIGHT) / number_of
    width = 0.84 * step / len(parts)
    lines = [
        f'<svg class="histogram" viewBox="0 0 {HISTOGRAM_WIDTH} {HISTOGRAM_HEIGHT}" role="img" '
        'aria-label="how many images have which radius">'
    ]
    for k, (kind, counts) in enumerate(parts):
        for i, count in enumerate(counts):
            size = (bottom - TOP) * count / most
            left = LEFT + (i + 0.08) * step + k * width
            ends = f"{number(i * high / number_of)} to {number((i + 1) * high / number_of)}"
            lines.append(
                f'<rect class="{escape(kind)}" x="{left:.1f}" y="{bottom - size:.1f}" '
                f'width="{width:.1f}" height="{size:.1f}">'
                f"<title>{escape(kind)}, {ends}: {count}</title></rect>"
            )
    for tick in ticks(0.0, high):
        place = LEFT + (HISTOGRAM_WIDTH - LEFT - RIGHT) * tick / max(high, 1e-12)
        lines.append(
            f'<text x="{place:.1f}" y="{bottom + 16}" text-anchor="middle">{number(tick)}</text>'
        )
    lines.append(f'<text x="{LEFT - 6}" y="{TOP + 8}" text-anchor="end">{most}</text>')
    lines.append(f'<line x1="{LEFT}" x2="{HISTOGRAM_WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    return "".join(lines) + "</svg>"
