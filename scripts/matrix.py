"""Run the tests on several versions of torch and Python, each in a virtual environment of its own.

python scripts/matrix.py FOLDER                        the versions that the documents name
python scripts/matrix.py FOLDER 2.6.0@3.11 2.15.0@3.13 these: torch, and the interpreter's version
python scripts/matrix.py FOLDER --tests tests/rules    these tests only

Environments are kept in FOLDER (some 6 GB each where torch comes with CUDA), with what pytest said.
Tools are those of constraints.txt. The table shows how many tests passed, were skipped and failed,
and how far bounds of networks (scripts/version_bounds.py) are from those of the first version,
relative to the largest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("2.6.0@3.11", "2.10.0@3.12", "2.13.0@3.11", "2.15.0@3.13")


class MatrixError(Exception):
    """A version cannot be tested; the message says why."""


@dataclass(frozen=True)
class Version:
    """A version of torch and one of Python."""

    torch: str
    python: str

    @staticmethod
    def of(text: str) -> Version:
        """From ``2.6.0@3.11``."""
        parts = re.fullmatch(r"(\d+\.\d+\.\d+)@(\d+\.\d+)", text)
        if parts is None:
            raise MatrixError(f"'{text}' is no version such as {VERSIONS[0]}")
        return Version(parts[1], parts[2])

    @property
    def name(self) -> str:
        return f"torch-{self.torch}-python-{self.python}"


@dataclass(frozen=True)
class Counts:
    """How many tests ended in which way."""

    passed: int
    skipped: int
    failed: int

    @staticmethod
    def of(report: Path) -> Counts:
        """From a report of pytest in the format of JUnit."""
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))

        def total(kind: str) -> int:
            return sum(int(suite.get(kind, 0)) for suite in suites)

        failed, skipped = total("failures") + total("errors"), total("skipped")
        return Counts(total("tests") - failed - skipped, skipped, failed)


def tools(constraints: str) -> str:
    """The lines of a file of constraints without that of torch."""
    lines = constraints.splitlines()
    return "".join(f"{line}\n" for line in lines if not re.match(r"torch\W", line))


def environment(version: Version, folder: Path) -> Path:
    """The interpreter of an environment with a version of torch; it is made if it is not there."""
    home = folder / version.name
    python, ready = home / "bin" / "python", home / "ready"
    if ready.exists():
        return python
    limits = folder / "constraints.txt"
    limits.write_text(tools((ROOT / "constraints.txt").read_text()))
    install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "-c", limits]
    for command in (
        [f"python{version.python}", "-m", "venv", home],
        [*install, f"torch=={version.torch}", f"{ROOT}[dev]"],
        [python, "-m", "pip", "uninstall", "--quiet", "--yes", "boundlab"],  # PYTHONPATH has it
    ):
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise MatrixError(f"no environment for {version.name}: {error}") from error
    ready.touch()
    return python


def tested(python: Path, report: Path, tests: list[str]) -> Counts:
    """Run tests with an interpreter; what pytest says goes to a file beside the report."""
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-rs", "--tb=short", f"--junitxml={report}", *tests]
    with report.with_suffix(".txt").open("w") as output:
        subprocess.run(command, cwd=ROOT, env=surroundings(), stdout=output, stderr=output)
    if not report.exists():
        raise MatrixError(f"pytest did not come to its end: {report.with_suffix('.txt')}")
    return Counts.of(report)


def surroundings() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def bounds(python: Path, file: Path) -> dict[str, np.ndarray]:
    """Bounds of networks, computed with an interpreter."""
    command = [python, ROOT / "scripts" / "version_bounds.py", file]
    if subprocess.run(command, cwd=ROOT, env=surroundings()).returncode:
        raise MatrixError(f"the bounds of networks could not be computed: {file.stem}")
    with np.load(file) as found:
        return dict(found)


def difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest difference of two versions' bounds, relative to the largest bound of the
    network; infinite if they are not of the same networks, or not of the same shapes."""
    if {name: a.shape for name, a in one.items()} != {name: a.shape for name, a in other.items()}:
        return float("inf")
    relative = [np.abs(a - other[name]).max() / np.abs(a).max() for name, a in one.items()]
    return float(np.max(relative))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--tests", nargs="+", default=[])
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    table = Table("torch", "Python", "passed", "skipped", "failed", "bounds")
    first, failed = None, 0
    try:
        for version in map(Version.of, options.versions):
            python = environment(version, folder)
            found = bounds(python, folder / f"{version.name}.npz")
            counts = tested(python, folder / f"{version.name}.xml", options.tests)
            first = first or found
            row = (counts.passed, counts.skipped, counts.failed, f"{difference(first, found):.1e}")
            table.add_row(version.torch, version.python, *map(str, row))
            failed += counts.failed
    except MatrixError as error:
        sys.exit(str(error))
    finally:
        Console().print(table)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
