"""Images as PNG text: pictures of inputs, and of how two inputs differ."""

from __future__ import annotations

import base64
import math
import struct
import zlib

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

SIDE = 112
"""Pixels of a picture's longer side at most."""
VALUES = 8_000_000
"""Values that all pictures of a page have together at most: the page stays below some 12 MB."""
LESS = torch.tensor([35.0, 88.0, 196.0]) / 255
MORE = torch.tensor([196.0, 62.0, 40.0]) / 255
"""Colours of the largest change downwards and upwards; no change is white."""


def is_picture(shape: torch.Size) -> bool:
    """Whether images of a shape (H, W), (1, H, W) or (3, H, W) can be seen."""
    if len(shape) == 2:
        shape = torch.Size((1, *shape))
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= 2


def reduction(shape: torch.Size, count: int) -> int:
    """By which whole factor so many pictures of a shape are made smaller."""
    if not is_picture(shape):
        return 1
    by_side = max(shape[-2:]) / SIDE
    by_all = math.sqrt(count * math.prod(shape) / VALUES)
    return max(1, math.ceil(max(by_side, by_all)))


def smaller(image: Tensor, factor: int) -> Tensor:
    """An image (H, W) or (channels, H, W) whose pixels are the means of ``factor`` by ``factor``
    pixels, in double precision."""
    image = image.double()
    if image.dim() == 2:
        image = image[None]
    if factor == 1:
        return image
    return avg_pool2d(image, factor, ceil_mode=True, count_include_pad=False)


def png(image: Tensor, low: float, high: float) -> str | None:
    """A data URI of an image (H, W), (1, H, W) or (3, H, W) whose values low ... high become black
    ... white; None for other shapes."""
    if not is_picture(image.shape):
        return None
    if image.dim() == 2:
        image = image[None]
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


def change_png(change: Tensor) -> str | None:
    """A data URI of a difference of two images, scaled to its largest value: of grey images blue is
    less, red more and white nothing; of colour images middle grey is nothing."""
    if not is_picture(change.shape):
        return None
    if change.dim() == 2:
        change = change[None]
    part = change.double() / change.abs().max().clamp(min=1e-12)  # -1 ... 1
    if len(part) == 3:
        return png(part, -1.0, 1.0)
    end = torch.where(part < 0, LESS[:, None, None], MORE[:, None, None])  # (3, H, W)
    return png(1.0 - part.abs() * (1.0 - end), 0.0, 1.0)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
