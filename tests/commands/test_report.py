"""The report: one file, nothing from elsewhere, everything escaped."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.commands.certificates import Certification, Run, Task
from boundlab.commands.certify import certify, region_around
from boundlab.commands.charts import margin_bars, png, ticks
from boundlab.commands.cuts import line_cuts
from boundlab.commands.report import SHOWN, page, write_report

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


@pytest.fixture(scope="module")
def job() -> tuple[bl.Net, Certification, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3)).eval()
    images = torch.rand(6, 1, 4, 4)
    net = bl.capture(model, images[:2])
    labels = model(images).argmax(1)
    labels[0] = (labels[0] + 1) % 3
    return (
        net,
        certify(
            net, images, labels, [0.01, 0.05, 0.3], ["ibp", "crown-ibp", "crown"], valid=(0, 1)
        ),
        images,
    )


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


def test_the_page_is_whole_and_self_contained(
    job: tuple[bl.Net, Certification, Tensor], tmp_path: Path
) -> None:
    net, found, images = job
    path = tmp_path / "some" / "index.html"
    write_report(
        path, found, images, line_cuts(net, found, images, 0.05), title="Title", note="A note"
    )
    text = path.read_text()
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


@pytest.mark.parametrize("shape", [(5, 4), (1, 5, 4), (3, 5, 4)])
def test_png_holds_the_pixels(shape: tuple[int, ...]) -> None:
    image = torch.rand(shape)
    uri = png(image, 0, 1)
    assert uri is not None
    data = base64.b64decode(uri.partition(",")[2])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    channels = 3 if shape[0] == 3 else 1
    assert (width, height, depth, colour) == (4, 5, 8, 2 if channels == 3 else 0)
    start = data.index(b"IDAT")
    size = struct.unpack(">I", data[start - 4 : start])[0]
    rows = zlib.decompress(data[start + 4 : start + 4 + size])
    pixels = torch.tensor(list(rows)).reshape(5, 1 + 4 * channels)[:, 1:].reshape(5, 4, channels)
    expected = (image.reshape(-1, 5, 4) * 255).round().permute(1, 2, 0)
    assert torch.equal(pixels, expected.long())


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("valid", [None, (0.0, 1.0)])
def test_cuts_lie_in_the_region_and_enclose_the_function(
    norm: str, valid: tuple[float, float] | None, job: tuple[bl.Net, Certification, Tensor]
) -> None:
    net, _, images = job
    labels = net.bounds(bl.Linf(images, 0.0), method="ibp").lower.argmax(1)
    found = certify(
        net,
        images,
        labels,
        [0.2],
        ["ibp", "crown", "crown-ibp", "forward+backward"],
        norm=norm,
        valid=valid,
    )
    cuts = line_cuts(net, found, images, 0.2)
    assert [cut.method for cut in cuts] == ["crown", "crown-ibp", "forward+backward"]
    for cut in cuts:
        assert (cut.lower <= cut.value + 1e-5).all()
        assert (cut.value <= cut.upper + 1e-5).all()
        region = region_around(images[cut.image : cut.image + 1], cut.radius, norm, valid)
        spec = torch.zeros(1, 3)
        spec[0, cut.label], spec[0, cut.rival] = 1, -1
        bounds = net.bounds(region, spec=spec, method=cut.method)
        assert bounds.lower.item() <= cut.value.min() + 1e-5
        assert bounds.upper.item() >= cut.value.max() - 1e-5
        for line in (cut.lower, cut.upper):  # straight
            assert (line.diff().diff().abs() < 1e-4).all()


def test_no_cut_without_a_correct_image(job: tuple[bl.Net, Certification, Tensor]) -> None:
    net, found, images = job
    wrong = Certification(found.task, found.labels, (found.labels + 1) % 3, found.runs)
    assert line_cuts(net, wrong, images, 0.05) == []
    only_ibp = Certification(
        found.task,
        found.labels,
        found.predictions,
        tuple(run for run in found.runs if run.method == "ibp"),
    )
    assert line_cuts(net, only_ibp, images, 0.05) == []


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 1.0), (0.0, 1e-5), (-3e6, 12.0), (2.0, 2.0), (-0.3, 17.2)]
)
def test_ticks(low: float, high: float) -> None:
    found = ticks(low, high)
    assert len(found) <= 9
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)
    assert 0.0 in found or low > 0 or high < 0


def test_bars_stay_inside() -> None:
    text = margin_bars([1e9, -1e9, math.nan, 0.5, 0.0], list("abcde"), -1.0, 2.0)
    for y, height in re.findall(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', text):
        assert 0 <= float(y) <= float(y) + float(height) <= 44.1
    assert text.count('class="good"') == 2
