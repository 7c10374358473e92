"""One style: small files, the same every time; labels that do not collide; visible colours."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

import boundlab as bl
from boundlab.plot import style
from boundlab.plot.surfaces import loss_surfaces


def luminance(colour: str) -> float:
    """Of WCAG 2."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#131416"])
def test_colours_stand_out_on_light_and_dark_pages(page: str) -> None:
    assert min(contrast(colour, page) for colour in style.COLOURS) > 3.4
    assert contrast(style.INK, page) > 4.2


def test_files_are_the_same_every_time_and_figures_are_closed(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        figure, (ax,) = bl.plot.figure()
        for k in range(3):
            ax.plot([0, 1], [0, k], label=f"line {k}", marker="o")
        bl.plot.label_ends(ax)
        bl.plot.save(figure, tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "line 2" in text
    assert "metadata" not in text
    assert "<style" not in text
    assert style.lighter(text) == text
    assert not plt.get_fignums()
    figure, _ = bl.plot.figure()
    bl.plot.save(figure, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    figure, _ = bl.plot.figure()
    with pytest.raises(bl.ArgumentError, match=r"must end with one of .*\.svg"):
        bl.plot.save(figure, tmp_path / "a.txt")


def test_lighter_files_show_the_same() -> None:
    path = '<path d="M 1.23456 -0.0001 \nL 20 3.999999 \nz\n"/>'
    assert style.lighter(path) == '<path d="M 1.23 -0 L 20 4 z"/>'
    mark = '<use href="#m" x="{}" style="fill: red"/>'
    marks = f"<g>\n {mark.format('1.0')}\n {mark.format('2.25')}\n</g>"
    found = style.lighter(marks)
    assert found.count("fill: red") == 1
    assert 'x="1"' in found
    assert 'x="2.25"' in found
    rules = f'<svg a="b"><style type="text/css">*{{{style.LINES}}}</style>'
    once = style.lighter(rules)
    assert once == f'<svg style="{style.LINES}" a="b">'
    assert style.lighter(once) == once
    mixed = '<g>\n<use style="fill: red"/>\n<use style="fill: blue"/>\n</g>'
    assert style.lighter(mixed) == mixed


def test_labels_are_spread() -> None:
    assert style.spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    assert style.spread([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])
    assert style.spread([], 0.1) == []
    found = style.spread([0.1, 0.12, 0.2, 0.21, 0.6], 0.08)
    gaps = [b - a for a, b in pairwise(found)]
    assert min(gaps) > 0.08 - 1e-9


def test_an_axes_of_ones_own_is_used_and_not_restyled() -> None:
    _, ax = plt.subplots()
    before = ax.get_facecolor(), ax.get_xlabel()
    bounds = bl.Bounds(torch.zeros(2, 2), torch.ones(2, 2))
    for draw in (bl.plot.boxes, bl.plot.tube):
        assert draw(bounds, ax=ax) is ax
    assert (ax.get_facecolor(), ax.get_xlabel()) == before
    with bl.plot.styled():
        _, other = plt.subplots()
    assert other.get_facecolor()[3] == 0


def test_surfaces_are_drawn_even_if_flat(tmp_path: Path) -> None:
    flat, steep = torch.full((5, 5), 0.3), torch.logspace(-8, 2, 25).view(5, 5)
    for name, loss in (("flat", flat), ("steep", steep)):
        loss_surfaces({name: (loss, 2.0)}, 5.0, tmp_path / f"{name}.svg")
        assert f"{name}: at most 2 in the circle" in (tmp_path / f"{name}.svg").read_text()


WITHOUT = """
import sys
import boundlab as bl
assert "matplotlib" not in sys.modules
sys.modules["matplotlib"] = None
try:
    bl.plot
except bl.ArgumentError as error:
    print(error)
"""


def test_matplotlib_is_imported_late_and_missed_in_words() -> None:
    made = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert made.stdout == "drawing needs matplotlib: pip install 'boundlab[plot]'\n"
    with pytest.raises(AttributeError, match="no attribute 'plto'"):
        bl.plto  # noqa: B018
