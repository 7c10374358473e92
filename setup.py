"""What pyproject.toml cannot say: the README of a package index. All else is said there.

Links to files of the repository lead nowhere on the page of a package, and the package knows no
address of a repository. So such a link becomes its text and the name of the file, and a picture
becomes nothing; links to addresses, and code, stay as they are.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

NOTE = "Files that are named on this page are in the source distribution of the same version.\n"
PARTS = re.compile(
    r"^```.*?^```$"  # code, which stays
    r"|^(?: {4}[^\n]*\n)+"
    r"|`[^`\n]+`"
    r"|!\[[^\]]*\]\((?!https?:)[^)]*\)\n?"  # pictures
    r"|<img [^>]*src=\"(?!https?:)[^>]*>\n?"
    r"|\[(?P<text>[^\]]+)\]\((?!https?:|mailto:)(?P<file>[^)#]*)(?:#[^)]*)?\)",  # links to files
    re.DOTALL | re.MULTILINE,
)


def standing_alone(text: str) -> str:
    """A page of Markdown that needs no file beside it."""
    return PARTS.sub(_part, text).rstrip() + "\n\n" + NOTE


def _part(found: re.Match[str]) -> str:
    if found[0].startswith(("!", "<")):
        return ""
    if found["text"] is None:
        return found[0]
    if not found["file"] or found["file"] in found["text"]:
        return found["text"]
    return f"{found['text']} ({found['file']})"


if __name__ == "__main__":
    page = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    setup(
        long_description=standing_alone(page),
        long_description_content_type="text/markdown",
    )
