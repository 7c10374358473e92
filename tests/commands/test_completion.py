"""Scripts for shells: they are valid, and offer all that the parsers take."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from boundlab.commands.parsers.completion import SHELLS
from boundlab.commands.table import COMMANDS, parsers
from boundlab.training.recipes import RECIPES
from tests.helpers.commands import run


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Path]:
    found = {}
    for shell in SHELLS:
        assert run("completion", shell) == 0
        found[shell] = tmp_path / shell
        found[shell].write_text(capsys.readouterr().out)
    return found


def offered(script: Path, *line: str) -> list[str]:
    """What bash offers behind some words."""
    words = " ".join(f"'{word}'" for word in line)
    asked = (
        f"source {script}; COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _boundlab; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_shells_take_the_scripts(scripts: dict[str, Path]) -> None:
    checked = [shell for shell in SHELLS if shutil.which(shell)]
    assert "bash" in checked
    for shell in checked:
        subprocess.run([shell, "-n", str(scripts[shell])], check=True)


def test_all_is_offered(scripts: dict[str, Path]) -> None:
    texts = {shell: path.read_text() for shell, path in scripts.items()}
    for name, parser in parsers().items():
        shown = [one for one in parser._actions if one.help != argparse.SUPPRESS]
        flags = {flag for one in shown for flag in one.option_strings if flag.startswith("--")}
        assert set(offered(scripts["bash"], "boundlab", name, "--")) == flags
        zsh = texts["zsh"].split(f"        {name})\n")[1].split(";;")[0]
        assert set(re.findall(r"'(--[\w-]+)\[", zsh)) == flags
        seen = f"'__fish_seen_subcommand_from {name}'"
        lines = [line for line in texts["fish"].splitlines() if seen in line]
        assert {f"--{one}" for line in lines for one in re.findall(r" -l ([\w-]+)", line)} == flags


def test_what_bash_offers(scripts: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    script = scripts["bash"]
    monkeypatch.chdir(script.parent)
    Path("digits.npz").touch()
    assert set(offered(script, "boundlab", "")) >= set(COMMANDS)
    assert offered(script, "boundlab", "cert") == ["certify"]
    assert offered(script, "boundlab", "certify", "a.onnx", "dig") == ["digits.npz"]
    assert offered(script, "boundlab", "certify", "--norm", "i") == ["inf"]
    assert offered(script, "boundlab", "certify", "--norm", "inf", "dig") == ["digits.npz"]
    assert offered(script, "boundlab", "certify", "--methods", "ibp", "comp") == ["complete"]
    assert offered(script, "boundlab", "certify", "--limit", "") == []
    assert set(offered(script, "boundlab", "train", "")) == set(RECIPES)
    assert offered(script, "boundlab", "completion", "z") == ["zsh"]
