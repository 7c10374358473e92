"""What an sdist holds: everything that is tracked, so that its tests run."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
BY_ITSELF = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")
"""What setuptools takes without being told, beside the package."""
OF_THE_REPOSITORY = (".gitignore", ".ci/", ".github/")


def tracked() -> list[str]:
    """The files that git knows, relative to the root."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git repository")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"git does not list its files: {listed.stderr}")
    return listed.stdout.splitlines()


def taken(path: str, commands: list[list[str]], data: list[str]) -> bool:
    """Whether setuptools takes a file: as a part of the package, or by the manifest."""
    pure = PurePosixPath(path)
    if pure.parts[0] == "boundlab":
        inside = pure.relative_to("boundlab").as_posix()
        return pure.suffix == ".py" or any(fnmatch(inside, pattern) for pattern in data)
    found = path in BY_ITSELF
    for command, *patterns in commands:
        if command in ("graft", "prune"):
            if any(fnmatch(str(parent), p) for parent in pure.parents for p in patterns):
                found = command == "graft"
        elif command in ("include", "exclude"):
            if any(fnmatch(path, pattern) for pattern in patterns):
                found = command == "include"
        else:
            assert command == "global-exclude", f"{command}: this test does not know it"
            found = found and not any(fnmatch(pure.name, pattern) for pattern in patterns)
    return found


def test_everything_that_is_tracked_is_in_the_sdist() -> None:
    commands = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    data = settings["package-data"]["boundlab"]
    left = [path for path in tracked() if not taken(path, commands, data)]
    assert [path for path in left if not path.startswith(OF_THE_REPOSITORY)] == []
    assert not taken("benchmarks/results/compare.json", commands, data)
    assert not taken("benchmarks/results/vnncomp-acas/a.csv", commands, data)
    assert not taken("tests/__pycache__/a.pyc", commands, data)
    assert not taken("data/mnist/train.gz", commands, data)
