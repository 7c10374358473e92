"""Charts of the report."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib

import pytest
import torch

from boundlab.commands.charts import margin_bars, png, ticks


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
