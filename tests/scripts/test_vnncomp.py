"""The scripts of the competition, called as it calls them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.instances import LARGEST, write_network, write_property

SCRIPTS = Path(__file__).parents[2] / "scripts" / "vnncomp"


def call(
    folder: Path, name: str, *arguments: object, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """A script with this interpreter, its notes in a folder."""
    around = {**os.environ, "BOUNDLAB_PYTHON": python, "TMPDIR": str(folder)}
    around["PYTHONPATH"] = str(SCRIPTS.parents[1])
    command = [str(SCRIPTS / name), *map(str, arguments)]
    return subprocess.run(command, env=around, capture_output=True, text=True, timeout=300)


def test_an_instance(tmp_path: Path) -> None:
    network, out = write_network(tmp_path), tmp_path / "out.txt"
    prop = write_property(tmp_path, LARGEST - 1e-3)
    assert call(tmp_path, "prepare_instance.sh", "v1", "c", network, prop).returncode == 0
    done = call(tmp_path, "run_instance.sh", "v1", "c", network, prop, out, 200)
    assert done.returncode == 0, done.stderr
    word, _, example = out.read_text().partition("\n")
    assert word == "sat" and example.startswith("((X_0 ")
    assert not list(tmp_path.glob("*.group"))


def test_errors_are_written(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    missing = tmp_path / "none.onnx"
    prop = write_property(tmp_path, 1.0)
    prepared = call(tmp_path, "prepare_instance.sh", "v1", "c", missing, prop)
    assert prepared.returncode != 0 and "no file" in prepared.stderr
    done = call(tmp_path, "run_instance.sh", "v1", "c", missing, prop, out, 100)
    assert done.returncode == 0 and out.read_text() == "error\n"
    call(tmp_path, "run_instance.sh", "v1", "c", missing, prop, out, 1, python="/nowhere/python")
    assert out.read_text() == "error\n"


@pytest.mark.parametrize("name", ["install_tool.sh", "prepare_instance.sh", "run_instance.sh"])
def test_other_versions_are_refused(name: str, tmp_path: Path) -> None:
    done = call(tmp_path, name, "v2", "c", "n", "p", "o", "1")
    assert done.returncode == 1 and "v1" in done.stderr


def test_leftovers_are_ended_and_nothing_else(tmp_path: Path) -> None:
    code = "import time; time.sleep(300)"
    ours, other = (
        subprocess.Popen([sys.executable, "-S", "-c", code, *words], start_new_session=True)
        for words in (("boundlab verify",), ("something else",))
    )
    files = (write_network(tmp_path), write_property(tmp_path, 1.0))
    noted = tmp_path / f"boundlab-vnncomp-{os.getuid()}.group"
    try:
        time.sleep(0.2)
        for process in (ours, other):
            noted.write_text(f"{process.pid}\n")
            assert call(tmp_path, "prepare_instance.sh", "v1", "c", *files).returncode == 0
            assert not noted.exists()
        assert ours.wait(60) == -signal.SIGKILL and other.poll() is None
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def test_installing(tmp_path: Path) -> None:
    """What would be run, with an interpreter that notes its arguments."""
    fake, log = tmp_path / "python", tmp_path / "log"
    made = tmp_path / "made" / "bin"
    lines = ("#!/bin/bash", f'echo "$@" >> "{log}"', f'mkdir -p "{made}"')
    copied = f'test -e "{made}/python" || cp "$0" "{made}/python"'
    fake.write_text("\n".join([*lines, copied, ""]))
    fake.chmod(0o755)
    around = {**os.environ, "PYTHON": str(fake), "BOUNDLAB_ENVIRONMENT": str(made.parent)}
    subprocess.run([SCRIPTS / "install_tool.sh", "v1"], env=around, check=True, timeout=60)
    venv, install, version = log.read_text().splitlines()
    assert venv == f"-m venv {made.parent}" and version == "-m boundlab --version"
    assert "--constraint" in install and "[onnx,milp,vnnlib] onnxruntime" in install
