"""The pages of the documentation as programs.

All ``python`` blocks of a page are one program, and its ``bash`` blocks are commands in between
that run too; ``sh`` blocks are commands that a reader gives with files of their own. A ``python``
block that begins with ``# name.py`` is the file of that name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.py)\n")
NOT_PAGES = {"_build", "extensions"}
"""Folders of docs/ that hold something else."""


def pages() -> list[Path]:
    """README and every page of docs/."""
    below = (ROOT / "docs").rglob("*.md")
    kept = [page for page in below if not NOT_PAGES & set(page.relative_to(ROOT).parts)]
    return [ROOT / "README.md", *sorted(kept)]


def name_of(page: Path) -> str:
    """``docs/guides/words.md`` as ``guides/words.md``."""
    return str(page.relative_to(ROOT)).removeprefix("docs/")


def program(page: Path) -> str:
    """The page as one program, which calls ``run(argv)`` for a command, ``write(name, text)`` for a
    file."""
    parts = []
    for language, block in BLOCK.findall(page.read_text()):
        file = FILE.match(block)
        if language == "python" and file is not None:
            parts.append(f"write({file[1]!r}, {block!r})")
        elif language == "python":
            parts.append(block)
        elif language == "bash":
            parts += [f"run({argv!r})" for argv in _commands(block)]
    return "\n".join(parts)


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every ``boundlab`` command in blocks of a page, fenced or indented."""
    for language, block in BLOCK.findall(text):
        if language in ("sh", "bash", "console"):
            yield from _commands(block)
    rest = BLOCK.sub("", text)
    indented = [line[4:] for line in rest.splitlines() if line.startswith("    ")]
    yield from _commands("\n".join(indented))


def mentioned(text: str) -> Iterator[tuple[str, list[str]]]:
    """Commands in the running text, ``boundlab certify --eps``, each with the flags it names."""
    for words in re.findall(r"`boundlab ([a-z]+(?: [^`]*)?)`", BLOCK.sub("", text)):
        command, *rest = words.split()
        yield command, [word for word in rest if word.startswith("--")]


def _commands(block: str) -> Iterator[list[str]]:
    lines = block.replace("\\\n", " ").splitlines()
    for line in lines:
        words = _words(line)
        for i, word in enumerate(words):
            if word == "boundlab" and (i == 0 or words[i - 1] == "-m" or "=" in words[i - 1]):
                yield words[i + 1 :]
                break


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line.removeprefix("$ "), comments=True)
    except ValueError:  # a quotation mark of a sentence: no command
        return []
