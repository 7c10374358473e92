"""Small sets of images and of sentences, and the files they are read from."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import torch

from boundlab.data import Images


def images(count: int = 96, side: int = 8) -> Images:
    """Three classes that differ by where they are bright."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 3
    pixels = torch.randint(0, 120, (count, 1, side, side), generator=generator, dtype=torch.uint8)
    for k in range(3):
        pixels[labels == k, :, :, 2 * k : 2 * k + 3] += 120
    return Images(pixels, labels, 3, "stripes")


def write_mnist(folder: Path) -> Path:
    """A tiny set in the form of MNIST's files."""
    data = images(96, 28)
    folder.mkdir()
    for part in ("train", "t10k"):
        pixels, labels = data.images.numpy(), data.labels.to(torch.uint8).numpy()
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(struct.pack(">IIII", 2051, len(data), 28, 28) + pixels.tobytes())
        )
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 2049, len(data)) + labels.tobytes()
        )
    return folder


def write_treebank(folder: Path) -> Path:
    """A tiny set of our own: praise and blame, with synonyms."""
    good, bad = ["fine", "great", "lovely", "superb"], ["poor", "awful", "dull", "weak"]
    lines = []
    for k in range(48):
        kind, label, leaf = (good, 4, 3) if k % 2 else (bad, 0, 1)
        first, second = kind[k % 4], kind[(k // 4) % 4]
        lines.append(
            f"({label} ({leaf} {first}) ({label} (2 and) ({label} ({leaf} {second}) (2 film))))"
        )
    for split in ("train", "dev", "test"):
        (folder / f"trees_{split}.txt").write_text(
            "\n".join(lines if split == "train" else lines[:12])
        )
    synonyms = {
        word: [other for other in kind if other != word] for kind in (good, bad) for word in kind
    }
    (folder / "counterfitted_neighbors.json").write_text(json.dumps(synonyms))
    return folder


TREES = {
    "train": [
        "(3 (2 A) (4 (3 good) (2 film)))",
        "(1 (2 A) (1 (1 bad) (2 film)))",
        "(2 (2 A) (2 film))",
        "(4 (3 good) (2 Fun\u00a0fun))",
    ],
    "dev": ["(3 (3 good) (2 film))", "(2 (2 a) (2 film))"],
    "test": ["(0 (1 bad) (2 mystery))"],
}


NEIGHBOURS = {"good": ["bad", "great", "film"], "film": ["film", "good"], "mystery": ["film"]}
