"""Pictures of inputs and of changes."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest
import torch
from torch import Tensor

from boundlab.commands.pictures import LESS, MORE, SIDE, VALUES, change_png, png, reduction, smaller


def pixels(uri: str | None) -> Tensor:
    """The bytes of a picture: (height, width, channels)."""
    assert uri is not None
    data = base64.b64decode(uri.partition(",")[2])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    channels = {0: 1, 2: 3}[colour]
    start = data.index(b"IDAT")
    size = struct.unpack(">I", data[start - 4 : start])[0]
    rows = torch.tensor(list(zlib.decompress(data[start + 4 : start + 4 + size])))
    return rows.reshape(height, 1 + width * channels)[:, 1:].reshape(height, width, channels)


@pytest.mark.parametrize("shape", [(5, 4), (1, 5, 4), (3, 5, 4)])
def test_png_holds_the_pixels(shape: tuple[int, ...]) -> None:
    image = torch.rand(shape)
    expected = (image.reshape(-1, 5, 4) * 255).round().permute(1, 2, 0)
    assert torch.equal(pixels(png(image, 0, 1)), expected.long())


@pytest.mark.parametrize("shape", [(7,), (2, 5, 4), (3, 1, 4), (1, 1, 5, 4)])
def test_what_has_no_picture(shape: tuple[int, ...]) -> None:
    assert png(torch.rand(shape), 0, 1) is None and change_png(torch.rand(shape)) is None
    assert reduction(torch.Size(shape), 10**9) == 1


def test_changes_are_scaled_and_signed() -> None:
    change = torch.tensor([[0.0, 0.01], [-0.01, 0.005]])
    found = pixels(change_png(change))
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[0, 1].tolist() == (MORE * 255).round().tolist()
    assert found[1, 0].tolist() == (LESS * 255).round().tolist()
    grey = pixels(change_png(torch.zeros(3, 2, 2)))
    assert grey.unique().tolist() == [128]
    assert pixels(change_png(torch.zeros(2, 2))).unique().tolist() == [255]


@pytest.mark.parametrize("shape", [(28, 28), (3, 32, 32), (3, 64, 64), (3, 224, 300), (1, 5, 900)])
@pytest.mark.parametrize("count", [1, 30, 2000, 6000])
def test_many_pictures_are_made_smaller(shape: tuple[int, ...], count: int) -> None:
    factor = reduction(torch.Size(shape), count)
    small = smaller(torch.rand(shape), factor)
    assert max(small.shape[-2:]) <= SIDE
    assert count * small.numel() <= VALUES * 1.5  # ends are rounded up
    if factor > 1:
        assert count * torch.Size(shape).numel() > VALUES or max(shape) > SIDE


def test_smaller_pictures_have_means() -> None:
    image = torch.arange(15.0).reshape(3, 5)
    assert smaller(image, 2).tolist() == [[[3.0, 5.0, 6.5], [10.5, 12.5, 14.0]]]
