"""The report: one file, nothing from elsewhere, everything escaped."""

from __future__ import annotations

import math
from dataclasses import replace
from html.parser import HTMLParser

import torch
from torch import Tensor

import boundlab as bl
from boundlab.commands.certificates import Certification, Run, Task
from boundlab.commands.cuts import line_cuts
from boundlab.commands.report import SHOWN, page

VOID = {"meta", "img", "input", "br", "link"}


EVIL = "<script>alert('&\"')</script>"


class Structure(HTMLParser):
    """Every tag is closed in order; collects attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_self_contained(text: str) -> None:
    assert "http:" not in text
    assert "https:" not in text
    found = Structure(text)
    assert "script" not in found.tags
    assert "link" not in found.tags
    sources = [
        value
        for name, value in found.attributes
        if name in ("src", "href", "srcset", "data", "action")
    ]
    assert all(value.startswith("data:image/png;base64,") for value in sources)
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_is_whole_and_self_contained(job: tuple[bl.Net, Certification, Tensor]) -> None:
    net, found, images = job
    text = page(found, images, line_cuts(net, found, images, 0.05), "Title", note="A note")
    assert_self_contained(text)
    assert text.count('<article class="card">') == 6
    assert text.count('class="cut"') == 2  # ibp has no linear bounds
    assert text.count('class="bars"') == 6 * 3
    assert text.count('class="yes"') == sum(row.verified for row in found.rows)
    assert text.count('class="wrong"') == 1
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    for row in found.rows:
        assert f"{row.share:.1%}" in text
        assert f"<td>{row.falsified / row.images:.1%}</td>" in text
    broken = sum(int(found.falsified(radius).sum()) for radius in found.radii)
    assert text.count('alt="counterexample of image') == text.count("becomes <b>") == broken > 0
    assert found.examples is not None
    worst = page(replace(found, examples=None), images, [], "Title")
    assert "becomes" not in worst and 'class="open"' in worst


def test_everything_is_escaped(job: tuple[bl.Net, Certification, Tensor]) -> None:
    net, found, images = job
    renamed = Certification(
        found.task,
        found.labels,
        found.predictions,
        tuple(Run(EVIL, r.radius, r.margins, r.seconds) for r in found.runs[:3]),
    )
    cuts = line_cuts(net, found, images, 0.05)
    text = page(renamed, images, cuts, title=EVIL, note=EVIL, names=[EVIL] * 3)
    assert "<script" not in text
    assert_self_contained(text)


def test_odd_numbers_and_shapes() -> None:
    for margin in (math.nan, math.inf, -math.inf, 0.0):
        task = Task("", "", 2, 3, "2", None)
        labels = torch.tensor([0, 1])
        run = Run("ibp", 0.1, torch.full((2, 2), margin, dtype=torch.float64), 0.0)
        text = page(
            Certification(task, labels, torch.tensor([-1, 1]), (run,)), torch.rand(2, 7), [], "t"
        )
        assert_self_contained(text)
        assert "<img" not in text  # a vector has no picture
        assert "predicted NaN" in text
        assert ">inf" not in text
        assert 'class="yes"' not in text


def test_long_lists_are_cut() -> None:
    count, classes = SHOWN + 50, 30
    task = Task("", "", count, classes, "inf", (0.0, 1.0))
    labels = torch.arange(count) % classes
    run = Run("crown", 0.1, torch.randn(count, classes - 1, dtype=torch.float64), 1.0)
    text = page(Certification(task, labels, labels, (run,)), torch.rand(count, 3, 4, 4), [], "t")
    assert text.count('<article class="card">') == SHOWN
    assert f"The first {SHOWN} of {count} are shown" in text
    assert text.count("<rect") == SHOWN * 10
