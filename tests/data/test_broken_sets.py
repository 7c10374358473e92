"""Sets of images of which something is missing or broken: it is named."""

from __future__ import annotations

import gzip
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boundlab as bl
from boundlab.data import load
from tests.helpers.image_sets import (
    DATA,
    FORMS,
    LABELS,
    PICTURE,
    T10K,
    TINY,
    WNIDS,
    Files,
    archives,
    check,
    idx,
    jpeg,
    pixels,
    sheet,
    write,
)


class Runs:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("false",)


def batch(labels: object, data: object = None) -> Callable[[bytes], bytes]:
    return lambda _: pickle.dumps(
        {"data": pixels(1, 3072) if data is None else data, "labels": labels}
    )


BROKEN: list[tuple[str, str, Callable[[bytes], bytes] | None, str]] = [
    (
        "plain",
        T10K,
        lambda data: data[:-1],
        "2368 bytes for sizes 3 x 28 x 28, but has 2367: it was cut off",
    ),
    ("plain", T10K, lambda data: data + b"1", "something follows"),
    ("plain", T10K, lambda data: data[:9], "begin with 00000803 and 3 sizes"),
    ("plain", T10K, lambda data: b"", "not with nothing"),
    ("plain", T10K, lambda data: idx(pixels(5)), "3 dimensions.*not with 00000801"),
    ("plain", T10K, lambda data: idx(pixels(3, 27, 28)), "27 x 28, not 28 x 28"),
    ("plain", T10K, lambda data: gzip.compress(data)[:-20], "not a whole gzip file"),
    ("plain", LABELS, None, "not found in"),
    (
        "plain",
        LABELS,
        lambda data: b"\0\0\x0d\x01" + data[4:],
        "1 dimension: .*begin with 00000801",
    ),
    ("plain", LABELS, lambda data: idx(np.zeros(4, np.uint8)), "3 images, but .* 4 labels"),
    ("plain", LABELS, lambda data: idx(np.full(3, 10, np.uint8)), "0 to 9, but reach 10"),
    ("python 2", "test_batch", lambda data: data[:-100], "not a python batch"),
    ("python 2", "test_batch", lambda data: b"", "EOFError"),
    ("python 2", "test_batch", batch([1], Runs()), r"it names (posix|nt)\.system"),
    ("python 2", "test_batch", batch([1], np.array([object()])), "array of type 'O8'"),
    ("python 2", "test_batch", batch([1], np.zeros((1, 3072))), "must be uint8.*not float64"),
    ("python 2", "test_batch", batch([1], b"text"), "not bytes"),
    ("python 2", "test_batch", batch([1, 2]), r"must be uint8 \(2, 3072\).*not uint8 \(1, 3072\)"),
    (
        "python 2",
        "test_batch",
        lambda _: pickle.dumps({"data": 1, "fine_labels": [1]}),
        "'data' and 'labels'",
    ),
    ("python 2", "test_batch", lambda _: pickle.dumps([1, 2]), "'data' and 'labels'"),
    *(
        ("python 2", "test_batch", batch(labels), "whole numbers from 0 to 9")
        for labels in ([10], ["cat"], [[1], [2, 3]], [])
    ),
    ("binary", "test_batch.bin", None, r"not found in.*test_batch\.bin"),
    ("binary", "test_batch.bin", lambda data: data[:-1], "not a number of images of 3073 bytes"),
    ("binary", "test_batch.bin", lambda data: b"", "0 bytes"),
    ("binary", "test_batch.bin", lambda data: b"\x0b" + data[1:], "0 to 9"),
    ("sheets", "test_batch.png", lambda data: data[: len(data) // 2], "not a whole picture"),
    ("sheets", "test_batch.png", lambda data: b"nothing", "not a whole picture"),
    (
        "sheets",
        "test_batch.png",
        lambda data: sheet(pixels(2, 3, 32, 32), 512),
        "512 pixels wide, not 1024",
    ),
    ("sheets", "test_lables.json", lambda data: b"[1]", "2 images, but .* 1 labels"),
    ("sheets", "test_lables.json", lambda data: b"[1, 2", "not a JSON list"),
    ("sheets", "test_lables.json", lambda data: b"[1, 2.5]", "whole numbers"),
    ("archives", "val.tar.xz", lambda data: data[:-500], r"not a whole tar\.xz archive"),
]
BROKEN_TINY: list[tuple[str, Callable[[bytes], bytes] | None, str]] = [
    (PICTURE, lambda data: data[:300], "not a whole picture"),
    (PICTURE, lambda data: jpeg(0, 32), "32 x 32, not 64 x 64"),
    (PICTURE, None, r"val_1\.JPEG is missing"),
    ("val/val_annotations.txt", lambda data: b"val_0.JPEG n1\n", "with tabs between"),
    (
        "val/val_annotations.txt",
        lambda data: b"val_0.JPEG\tn1\n",
        r"images of n1, which wnids\.txt does not list",
    ),
    ("wnids.txt", lambda data: data[:-10], "200 different classes; it has 199 lines"),
    ("wnids.txt", lambda data: data[:-10] + data[:10], "200 lines, 199 of them different"),
    ("wnids.txt", None, r"no wnids\.txt.*only 5 of 200 classes"),
]


def changed(files: Files, file: str, change: Callable[[bytes], bytes] | None) -> Files:
    rest = {name: content for name, content in files.items() if name != file}
    return rest if change is None else rest | {file: change(files[file])}


@pytest.mark.parametrize(("form", "file", "change", "message"), BROKEN)
def test_broken_files_are_named(
    form: str, file: str, change: Callable[[bytes], bytes] | None, message: str, tmp_path: Path
) -> None:
    write(tmp_path, changed(FORMS[form][2], file, change))
    with pytest.raises(bl.ArgumentError, match=message) as caught:
        load(FORMS[form][0], tmp_path, "test")
    assert file in str(caught.value)


@pytest.mark.parametrize("wrap", [lambda files: files, archives], ids=["folder", "archives"])
@pytest.mark.parametrize(("file", "change", "message"), BROKEN_TINY)
def test_broken_tiny_imagenet(
    file: str,
    change: Callable[[bytes], bytes] | None,
    message: str,
    wrap: Callable[[Files], Files],
    tmp_path: Path,
) -> None:
    write(tmp_path, wrap(changed(TINY, file, change)))
    for split in ("train", "test") if file == "wnids.txt" else ("test",):
        with pytest.raises(bl.ArgumentError, match=message):
            load("tiny-imagenet", tmp_path, split)


@pytest.mark.parametrize("wrap", [lambda files: files, archives], ids=["folder", "archives"])
def test_without_a_list_classes_are_numbered_in_order(
    wrap: Callable[[Files], Files], tmp_path: Path
) -> None:
    every = {f"train/{wnid}/images/{wnid}_0.JPEG": TINY[PICTURE] for wnid in WNIDS}
    write(tmp_path, wrap(every | changed(TINY, "wnids.txt", None)))
    assert load("tiny-imagenet", tmp_path, "test").labels.tolist() == [
        sorted(WNIDS).index(WNIDS[k]) for k in (7, 0, 199)
    ]
    assert load("tiny-imagenet", tmp_path, "train").labels.unique().tolist() == list(range(200))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("name", "wanted", "remedy"),
    [
        ("mnist", "-images-idx3-ubyte.*mnist, .*MNIST/raw", "`make data`"),
        ("fashion-mnist", "-labels-idx1-ubyte.*FashionMNIST/raw", "`make data`"),
        ("cifar10", r"batch.*\.bin.*\.png.*_lables\.json.*cifar-10-batches-py", "`make data`"),
        ("tiny-imagenet", r"wnids\.txt.*JPEG.*\.tar\.xz", "tiny-imagenet-200.zip"),
        ("downscaled-imagenet", r"(train_data_batch_10|val_data); or .*\.npz", "64x64"),
    ],
)
def test_nothing_there(name: str, wanted: str, remedy: str, split: str, tmp_path: Path) -> None:
    with pytest.raises(
        bl.ArgumentError,
        match=(f"{name}, {split}: not found in .*{tmp_path.name}.*{wanted}.*{remedy}"),
    ):
        load(name, tmp_path, split)
    with pytest.raises(bl.ArgumentError, match=f"no directory .*nowhere.*{remedy}"):
        load(name, tmp_path / "nowhere", split)
    with pytest.raises(bl.ArgumentError, match='"train" or "test", not \'val\''):
        load(name, tmp_path, "val")
    with pytest.raises(
        bl.ArgumentError,
        match=(
            r"no set 'imagenet'.*mnist, fashion-mnist, cifar10, "
            r"tiny-imagenet"
        ),
    ):
        load("imagenet", tmp_path, split)


def test_pillow_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in ("plain", "sheets", "folder"):
        write(tmp_path, FORMS[form][2])
    for name in [name for name in sys.modules if name.partition(".")[0] == "PIL"]:
        monkeypatch.setitem(sys.modules, name, None)
    check(load("mnist", tmp_path, "test"), DATA["mnist", "test"])
    for name in ("cifar10", "tiny-imagenet"):
        with pytest.raises(bl.ArgumentError, match=r"Pillow.*boundlab\[data\]"):
            load(name, tmp_path, "test")
