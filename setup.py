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
CODE = re.compile(r"(^```.*?^```$|^(?: {4}[^\n]*\n)+|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n?|<img [^>]*src=\"(?!https?:)[^>]*>\n?")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|mailto:)([^)#]*)(?:#[^)]*)?\)")


def standing_alone(text: str) -> str:
    """A page of Markdown that needs no file beside it."""
    parts = CODE.split(text)  # code at odd places
    parts[::2] = [LINK.sub(_named, PICTURE.sub("", part)) for part in parts[::2]]
    return "".join(parts).rstrip() + "\n\n" + NOTE


def _named(link: re.Match[str]) -> str:
    text, file = link[1], link[2]
    if not file or file in text:
        return text
    return f"{text} ({file})"


if __name__ == "__main__":
    page = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    setup(
        long_description=standing_alone(page),
        long_description_content_type="text/markdown",
    )
