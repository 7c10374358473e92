"""One style for all pictures: legible on white and on black pages.

Pages are light or dark, and a picture that is linked from one cannot always know which. So the
background is transparent, and ink and colours are of a middle lightness: each has a contrast of at
least 3.4 against white and against a dark page, text of at least 4.2. The colours are those of
Okabe and Ito (2008), which colour-blind people can tell apart, moved to that lightness.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType
from numpy.typing import ArrayLike

from boundlab.errors import ArgumentError
from boundlab.storage.files import write_atomically

INK = "#767c85"
"""Text, axes, and whatever is not data."""
BLUE, ORANGE, GREEN, PINK, AMBER = "#2b7fc4", "#d55e00", "#129873", "#c2659a", "#a9800f"
COLOURS = (BLUE, ORANGE, GREEN, PINK, AMBER, INK)
"""Of lines, in this order; also told apart by their dashes from the fourth on."""
DASHES: tuple[Any, ...] = ("-", "-", "-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
LOWER, UPPER = BLUE, ORANGE
"""Lower and upper bounds."""
PROVED, OPEN, BROKEN = BLUE, INK, ORANGE
"""Verdicts."""
FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Of SVG files: two of the same width, as the layout was made for the first."""
END = "end-of-line"
"""What labels at the ends of lines are called in SVG files."""
LINES = "stroke-linejoin: round; stroke-linecap: butt"
"""How matplotlib's SVG files want lines drawn."""
FILL = 0.25
"""Opacity of filled areas: of bands and sets."""

STYLE: dict[Any, Any] = {
    "figure.facecolor": "none",
    "figure.figsize": (5.6, 3.2),
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "axes.prop_cycle": cycler(color=COLOURS, linestyle=DASHES),
    "lines.linewidth": 1.6,
    "font.size": 9,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "image.cmap": "cividis",
    "svg.fonttype": "none",  # text stays text: small, and can be found
    "svg.hashsalt": "boundlab",  # the same file every time
}


def styled() -> AbstractContextManager[None]:
    """Figures that are made inside of a with statement have this style."""
    return matplotlib.rc_context(STYLE)


def use_style() -> None:
    """Give all figures that are made from now on this style, those of other code too."""
    matplotlib.rcParams.update(STYLE)


def figure(
    columns: int = 1, width: float = 5.6, height: float = 3.2, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    """A figure in this style with Axes side by side, row after row; width and height in inches, of
    all of it."""
    with styled():
        made, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False)
    return made, list(axes.flat)


def given_or_new(ax: Axes | None) -> Axes:
    """The Axes that a caller gave, else those of a new figure in this style."""
    if ax is not None:
        return ax
    return figure()[1][0]


def given_or_next(ax: Axes, colour: ColorType | None) -> ColorType:
    """The colour that a caller gave, else the next one of the Axes."""
    if colour is not None:
        return colour
    (line,) = ax.plot([], [])
    line.remove()
    return line.get_color()


def save(made: Figure, path: Path | str) -> None:
    """Write a figure in the format that the file's name ends with, whole or not at all, and the
    same file every time. SVG files are made lighter. The figure is closed."""
    path = Path(path)
    check_format(path)
    kind = path.suffix[1:].lower()
    stream = io.BytesIO()
    metadata = {"svg": {"Date": None, "Creator": None}}.get(kind)
    with styled():
        made.savefig(stream, format=kind, metadata=metadata, dpi=150)
    plt.close(made)
    content = stream.getvalue()
    if kind == "svg":
        content = lighter(content.decode()).encode()
    write_atomically(path, content)


def check_format(path: Path) -> None:
    """Complain if matplotlib does not write files of this name."""
    forms = plt.figure().canvas.get_supported_filetypes()
    plt.close()
    if path.suffix[1:].lower() not in forms:
        raise ArgumentError(
            f"cannot draw into {path}: its name must end with one of "
            f"{', '.join(f'.{form}' for form in sorted(forms))}"
        )


def lighter(svg: str) -> str:
    """The same picture in fewer bytes: places with hundredths of a point, a path on a line, a short
    list of fonts, no description of the file, and nothing that touches a page around it."""
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    rule = f'<style type="text/css">*{{{LINES}}}</style>'
    if rule in svg:  # it would hold for all of the page that a picture is put into
        svg = svg.replace(rule, "")
        svg = svg.replace("<svg ", f'<svg style="{LINES}" ', 1)
    svg = re.sub(r"font-family: '[^;\"]*", f"font-family: {FONTS}", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    svg = re.sub(r"<g([^>]*)>\s*((?:<use [^>]*/>\s*)+)</g>", _one_style, svg)
    return re.sub(r' (d|x|y)="([^"]*)"', lambda found: f' {found[1]}="{_rounded(found[2])}"', svg)


def _one_style(group: re.Match[str]) -> str:
    """Markers of a group that all look the same, with their style at the group."""
    looks = set(re.findall(r' style="([^"]*)"', group[2]))
    if len(looks) != 1:
        return group[0]
    markers = re.sub(r' style="[^"]*"', "", group[2])
    return f'<g{group[1]} style="{looks.pop()}">\n{markers.strip()}\n</g>'


def _rounded(text: str) -> str:
    """A text whose numbers have at most two digits behind the point, in one line."""
    short = re.sub(r"-?\d+\.\d+(?:e[-+]?\d+)?", lambda found: _number(float(found[0])), text)
    return " ".join(short.split())


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


# -- parts of pictures -----------------------------------------------------------------------------


def band(
    ax: Axes,
    x: ArrayLike,
    runs: Sequence[ArrayLike],
    label: str,
    colour: ColorType | None = None,
) -> Line2D:
    """The mean of several runs as a line, and from the least to the greatest of them a band."""
    values = np.asarray(runs, dtype=float)
    (line,) = ax.plot(x, values.mean(0), label=label, color=colour)
    if len(values) > 1:
        ax.fill_between(
            x, values.min(0), values.max(0), color=line.get_color(), alpha=FILL, linewidth=0
        )
    return line


def label_ends(ax: Axes, gap: float = 0.075) -> None:
    """Write the label of every line to the right of its end, instead of a legend: no label covers
    data or another label. gap: least distance of two labels, as a share of the height. Labels that
    an earlier call has written are replaced."""
    for text in [text for text in ax.texts if text.get_gid() == END]:
        text.remove()
    ax.autoscale_view()
    lines = [line for line in ax.get_lines() if not str(line.get_label()).startswith("_")]
    ends = [(_height_of_end(ax, line), line) for line in lines]
    ends.sort(key=lambda end: end[0])
    for height, (_, line) in zip(spread([h for h, _ in ends], gap), ends, strict=True):
        ax.text(
            1.015, height, str(line.get_label()), color=line.get_color(), va="center",
            transform=ax.transAxes, gid=END,
        )  # fmt: skip


def _height_of_end(ax: Axes, line: Line2D) -> float:
    """The height of a line's last finite point as a share of that of the Axes, between 0 and 1."""
    x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    finite = np.flatnonzero(np.isfinite(y))
    if not len(finite):
        return 0.5
    at = ax.transData.transform((x[finite[-1]], y[finite[-1]]))
    return float(np.clip(ax.transAxes.inverted().transform(at)[1], 0.0, 1.0))


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights in rising order, moved until neighbours are ``gap`` apart; a run of them that collide
    stays around its mean."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _top(groups[-2], gap) + gap > _bottom(groups[-1], gap):
            last = groups.pop()
            groups[-1] += last
    return [_bottom(group, gap) + k * gap for group in groups for k in range(len(group))]


def _bottom(group: list[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _top(group: list[float], gap: float) -> float:
    return _bottom(group, gap) + gap * (len(group) - 1)


def legend_beside(ax: Axes) -> None:
    """A legend to the right of the Axes, where it covers no data."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, labelcolor=INK)


def ticks_at(axis: Axis, values: Sequence[float]) -> None:
    """Ticks at these values and nowhere else, also on logarithmic axes, whose own ticks can lie so
    close that their labels are printed over each other."""
    axis.set_major_locator(ticker.FixedLocator(list(values)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def per_cent(axis: Axis) -> None:
    """Shares are shown in per cent."""
    axis.set_major_formatter(ticker.FuncFormatter(lambda share, _: f"{100 * share:g} %"))
