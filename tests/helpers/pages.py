"""Reading pages of HTML as tests need it."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br", "link", "wbr"}
EVIL = "<script>alert('&\"')</script>"
"""A name that must be escaped wherever it is written."""


class Structure(HTMLParser):
    """Every tag is closed in order; collects elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = [(name, value or "") for name, value in attrs]
        self.tags.append(tag)
        self.elements.append((tag, dict(held)))
        self.attributes += held

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)

    @property
    def said(self) -> str:
        """The text of the page in one line."""
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of all elements of a kind."""
        return [held for name, held in self.elements if name == tag]


class Cells(HTMLParser):
    """The words of tables, row by row, and of the headings and facts before them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.facts: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag if tag in ("td", "th", "li") else self.inside
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "li":
            self.facts.append("")
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in ("td", "th"):
            self.rows[-1][-1] += data
        if self.inside == "li":
            self.facts[-1] += data

    def row(self, name: str) -> list[str]:
        (found,) = (row[1:] for row in self.rows if row[0] == name)
        return found


def assert_self_contained(text: str) -> None:
    """Nothing comes from elsewhere, and the only script is the page's own."""
    assert "http:" not in text
    assert "https:" not in text
    found = Structure(text)
    assert found.all("script") == [{}]
    assert "link" not in found.tags
    sources = [
        value
        for name, value in found.attributes
        if name in ("src", "href", "srcset", "data", "action")
    ]
    assert all(value.startswith("data:image/png;base64,") for value in sources)
    assert "@import" not in text
    assert text.count("url(") == text.count("url(#hatched)")


def assert_accessible(text: str) -> None:
    """Pictures and charts have words, ids are unique, names lead to ids, heads of tables say what
    they are the head of, and what is chosen has a name."""
    found = Structure(text)
    assert all(picture["alt"] for picture in found.all("img"))
    assert all(chart.get("aria-label") or "aria-hidden" in chart for chart in found.all("svg"))
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {label["for"] for label in found.all("label")} <= set(ids)
    assert all(head["scope"] in ("col", "row", "rowgroup") for head in found.all("th"))
    assert all(select["aria-label"] for select in found.all("select"))
    assert found.all("html") == [{"lang": "en"}]
    assert found.tags.count("h1") == found.tags.count("main") == 1
    assert text.partition("<style>")[0].count("<title>") == 1
