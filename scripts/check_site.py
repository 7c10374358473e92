"""Check the built documentation: every link inside of it leads somewhere, and nothing that a page
needs to be shown comes from another host.

    python scripts/check_site.py [FOLDER]

Ends with code 1 and a line for every link that is broken.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

BUILT = Path("docs/_build/html")
SHOWN = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser fetches to show a page."""


class Page(HTMLParser):
    """The links of a page, what it fetches, and the places that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif SHOWN.get(tag, "") in given:
            self.fetched.append(given[SHOWN[tag]])


def faults(folder: Path) -> Iterator[str]:
    """What is wrong, a line each."""
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"there are no pages in {folder}"
    for path, page in pages.items():
        name = path.relative_to(folder)
        for link in page.fetched:
            if urlsplit(link).netloc:
                yield f"{name} needs {link} to be shown"
        for link in page.links + page.fetched:
            if _is_broken(link, path, pages):
                yield f"{name} links to {link}"


def _is_broken(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = path
    if parts.path:
        target = (path.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target = target / "index.html"
    if target in pages and parts.fragment:
        return unquote(parts.fragment) not in pages[target].places
    return not target.exists()


def main(argv: list[str]) -> int:
    found = list(faults(Path(argv[0] if argv else BUILT).resolve()))
    print("\n".join(found) or "every link inside of the site leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
