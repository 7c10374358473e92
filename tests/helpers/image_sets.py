"""Small sets of images, in every form that the real ones come in."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from boundlab.data import Images

Files = dict[str, bytes]


WNIDS = [f"n{(7919 * k) % 10007:08}" for k in range(200)]  # all different, not in order
T10K, LABELS, PICTURE = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "val/images/val_1.JPEG"


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


# -- small sets in every form ----------------------------------------------------------------------

DATA = {
    ("mnist", "train"): (pixels(4, 1, 28, 28, seed=1), [5, 0, 4, 1]),
    ("mnist", "test"): (pixels(3, 1, 28, 28, seed=2), [7, 9, 0]),
    ("cifar10", "train"): (pixels(10, 3, 32, 32, seed=3), [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]),
    ("cifar10", "test"): (pixels(2, 3, 32, 32, seed=4), [3, 8]),
    ("downscaled-imagenet", "train"): (
        pixels(10, 3, 64, 64, seed=5),
        [0, 999, 7, 7, 500, 1, 2, 3, 4, 5],
    ),
    ("downscaled-imagenet", "test"): (pixels(2, 3, 64, 64, seed=6), [999, 0]),
}
CIFAR = {
    f"data_batch_{k + 1}": tuple(part[2 * k : 2 * k + 2] for part in DATA["cifar10", "train"])
    for k in range(5)
}
CIFAR["test_batch"] = DATA["cifar10", "test"]


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def idx_files(separator: str, suffix: str) -> Files:
    files = {}
    for stem, split in (("train", "train"), ("t10k", "test")):
        raw, labels = DATA["mnist", split]
        for kind, array in (("images", raw[:, 0]), ("labels", np.array(labels, dtype=np.uint8))):
            files[f"{stem}-{kind}{separator}idx{array.ndim}-ubyte{suffix}"] = (
                gzip.compress(idx(array)) if suffix else idx(array)
            )
    return files


def python2_batch(raw: np.ndarray, labels: list[int]) -> bytes:
    """As Python 2 wrote it, in protocol 2 with strings of bytes."""
    short = lambda text: b"U" + bytes([len(text)]) + text
    number = lambda value: b"J" + struct.pack("<i", value)
    kind = (
        b"cnumpy\ndtype\n("
        + short(b"u1")
        + b"K\0K\1tR(K\3"
        + short(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    )
    state = (
        b"(K\1("
        + number(len(raw))
        + number(3072)
        + b"t"
        + kind
        + b"\x89T"
        + struct.pack("<i", raw.size)
        + raw.tobytes()
        + b"tb"
    )
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0t"
        + short(b"b")
        + b"tR"
        + state
    )
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    return (
        b"\x80\x02}("
        + short(b"data")
        + array
        + short(b"labels")
        + listed
        + short(b"batch_label")
        + short(b"batch 1")
        + b"u."
    )


def pickles(protocol: int) -> Files:
    return {
        stem: pickle.dumps({"data": raw.reshape(-1, 3072), "labels": labels}, protocol)
        for stem, (raw, labels) in CIFAR.items()
    }


def downscaled(suffix: str) -> Files:
    """Its labels count from 1, and it has a mean image, which is not read."""
    files = {}
    for split, stems in (
        ("train", [f"train_data_batch_{k}" for k in range(1, 11)]),
        ("test", ["val_data"]),
    ):
        raw, labels = DATA["downscaled-imagenet", split]
        step = len(raw) // len(stems)
        for k, stem in enumerate(stems):
            part = {
                "data": raw[k * step : (k + 1) * step].reshape(step, -1),
                "labels": [y + 1 for y in labels[k * step : (k + 1) * step]],
            }
            content = {**part, "mean": np.zeros(12288)}
            buffer = io.BytesIO()
            if suffix:
                np.savez(buffer, **content)
            files[stem + suffix] = buffer.getvalue() if suffix else pickle.dumps(content, 4)
    return files


def picture(image: Image.Image, form: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def sheet(raw: np.ndarray, width: int = 1024) -> bytes:
    return picture(Image.fromarray(raw.transpose(0, 2, 3, 1).reshape(-1, width, 3)), "PNG")


def jpeg(colour: tuple[int, int, int] | int, side: int = 64) -> bytes:
    """A picture of one colour, grey if it is one number."""
    return picture(
        Image.new("L" if isinstance(colour, int) else "RGB", (side, side), colour), "JPEG"
    )


TRAINED = [
    f"train/{WNIDS[k]}/images/{WNIDS[k]}_{number}.JPEG" for k, number in ((1, 0), (3, 9), (3, 10))
]
TINY = {
    TRAINED[2]: jpeg((250, 10, 10)), TRAINED[1]: jpeg((10, 10, 250)), TRAINED[0]: jpeg(100),
    f"train/{WNIDS[1]}/{WNIDS[1]}_boxes.txt": b"not a picture",
    "val/images/val_0.JPEG": jpeg((10, 10, 250)), "val/images/val_10.JPEG": jpeg((250, 10, 10)),
    "val/images/val_1.JPEG": jpeg(200),
    "val/val_annotations.txt": "".join(
        f"val_{k}.JPEG\t{WNIDS[j]}\t0\t1\t2\t3\n" for k, j in ((0, 7), (1, 0), (10, 199))
    ).encode(),
    "wnids.txt": "".join(f"{wnid}\n" for wnid in WNIDS).encode(),
}  # fmt: skip
for _split, _names, _labels in (
    ("train", TRAINED, [1, 3, 3]),
    ("test", [f"val/images/val_{k}.JPEG" for k in (0, 1, 10)], [7, 0, 199]),
):
    _decoded = [
        np.array(Image.open(io.BytesIO(TINY[name])).convert("RGB")).transpose(2, 0, 1)
        for name in _names
    ]
    DATA["tiny-imagenet", _split] = np.stack(_decoded), _labels


def archive(files: Files, above: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as made:
        for name, content in files.items():
            member = tarfile.TarInfo(above + name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def archives(files: Files, above: str = "tiny-imagenet-200/") -> Files:
    trained = [name for name in files if name.startswith("train/")]
    parts = {
        f"train_{k}.tar.xz": archive({name: files[name] for name in trained[k::2]}, above)
        for k in range(2)
    }
    return parts | {
        "val.tar.xz": archive(
            {name: content for name, content in files.items() if name not in trained}, above
        )
    }


def binary() -> Files:
    """CIFAR-10 as a label and an image after each other."""
    records = lambda part: (bytes([y]) + x.tobytes() for x, y in zip(*part, strict=True))
    return {f"{stem}.bin": b"".join(records(part)) for stem, part in CIFAR.items()}


def sheets() -> Files:
    """CIFAR-10 as large pictures, with the labels beside them."""
    labels = {split: DATA["cifar10", split][1] for split in ("train", "test")}
    return {f"{stem}.png": sheet(raw) for stem, (raw, _) in CIFAR.items()} | {
        f"{split}_lables.json": json.dumps(found).encode() for split, found in labels.items()
    }


FORMS: dict[str, tuple[str, str, Files]] = {
    "plain": ("mnist", ".", idx_files("-", "")),
    "dots": ("mnist", "MNIST/raw", idx_files(".", "")),
    "gzipped": ("mnist", "package/data", idx_files("-", ".gz")),
    "gzipped dots": ("fashion-mnist", "FashionMNIST/raw", idx_files(".", ".gz")),
    "python 2": (
        "cifar10",
        "cifar-10-batches-py",
        {stem: python2_batch(*part) for stem, part in CIFAR.items()},
    ),
    **{f"protocol {protocol}": ("cifar10", "cifar10", pickles(protocol)) for protocol in (2, 4, 5)},
    "binary": ("cifar10", "cifar-10-batches-bin", binary()),
    "sheets": ("cifar10", "package", sheets()),
    "folder": ("tiny-imagenet", "tiny-imagenet-200", TINY),
    "archives": ("tiny-imagenet", ".", archives(TINY)),
    "archives, bare names": ("tiny-imagenet", "tiny-imagenet", archives(TINY, "./")),
    "downscaled": ("downscaled-imagenet", "downscaled-imagenet", downscaled("")),
    "downscaled, zipped": ("downscaled-imagenet", ".", downscaled(".npz")),
}


def check(data: Images, expected: tuple[np.ndarray, list[int]]) -> None:
    assert data.images.dtype == torch.uint8 and data.labels.dtype == torch.int64
    assert np.array_equal(data.images.numpy(), expected[0]) and data.labels.tolist() == expected[1]
