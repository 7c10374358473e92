"""Take the screenshots of docs/pictures/: the report of boundlab demo, and pages of the site.

    boundlab demo && make docs && python -m scripts.take_screenshots

Needs chromium, chromedriver, selenium and Pillow. Pictures are kept with few colours, so that each
has less than 150 kB.
"""

from __future__ import annotations

import base64
import io
import shutil
from pathlib import Path

from PIL import Image

from tests.browser.driver import Browser

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
REPORT = ROOT / "boundlab-report" / "index.html"
SITE = ROOT / "docs" / "_build" / "html"
WIDE, NARROW, GAP = 1280, 500, 24
COLOURS, MOST = 256, 150_000


def taken(browser: Browser, page: Path, width: int, height: int, dark: bool) -> Image.Image:
    """The first ``height`` pixels of a page in a window of a width."""
    browser.open(page, width, dark)
    browser.command(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )
    held = browser.command("Page.captureScreenshot", format="png")
    return Image.open(io.BytesIO(base64.b64decode(held["data"]))).convert("RGB")


def beside(*parts: Image.Image) -> Image.Image:
    """Pictures in a row, with a gap in between."""
    width = sum(one.width for one in parts) + GAP * (len(parts) - 1)
    made = Image.new("RGB", (width, max(one.height for one in parts)), "grey")
    left = 0
    for one in parts:
        made.paste(one, (left, 0))
        left += one.width + GAP
    return made


def write(picture: Image.Image, name: str, scale: float = 1.0) -> None:
    size = (round(picture.width * scale), round(picture.height * scale))
    small = picture.resize(size, Image.Resampling.LANCZOS)
    path = PICTURES / name
    few = small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    assert path.stat().st_size <= MOST, f"{name} has {path.stat().st_size} bytes"


def main() -> None:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium is not None and driver is not None, "needs chromium and chromedriver"
    browser = Browser(chromium, driver)
    try:
        write(taken(browser, REPORT, WIDE, 1690, dark=False), "report.png")
        dark = taken(browser, REPORT, WIDE, 1270, dark=True)
        narrow = taken(browser, REPORT, NARROW, 1270, dark=False)
        write(beside(dark, narrow), "report-dark.png", 0.6)
        start, gallery = SITE / "start.html", SITE / "gallery" / "index.html"
        light = taken(browser, start, WIDE, 1000, dark=False)
        dark = taken(browser, gallery, WIDE, 1000, dark=True)
        narrow = taken(browser, start, NARROW, 1000, dark=False)
        write(beside(light, dark, narrow), "site.png", 0.5)
    finally:
        browser.close()


if __name__ == "__main__":
    main()
