"""Docstrings as they stand in the source, as lists of parameters.

In boundlab a docstring explains parameters in running text, ``eps: the radius. lower, upper: the
valid range.`` Sphinx wants a field for each. Only names that the signature really has begin a
field, so that other colons stay what they are.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from sphinx.application import Sphinx

SHAPE = re.compile(r"(\((?=[^()]*(?:, \*|\bsamples\b|\bbatch\b|\brows\b|\w,\)))[^()`]*,[^()`]*\))")
"""Shapes, ``(samples, *shape)``: parentheses that hold a comma and what shapes are made of."""
LITERAL = re.compile(r"(``.*?``|:\w+:`.*?`)", re.DOTALL)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    names = _parameters(what, obj)
    text, found = [], []
    for paragraph in _paragraphs(lines):
        if all(line.startswith("    ") for line in paragraph):  # a formula, an example
            text += ["::", "", *paragraph, ""]
            continue
        words = " ".join(line.strip() for line in paragraph)
        if words.startswith("Returns "):
            returned = words.removeprefix("Returns ")
            found.append(f":returns: {_marked(returned[0].upper() + returned[1:])}")
            continue
        before, parameters = _split(words, names)
        if before:
            text += [_marked(before), ""]
        found += parameters
    lines[:] = [*text, *found, ""]


def _parameters(what: str, obj: Any) -> set[str]:
    """The names that a docstring may explain."""
    if what == "class" and is_dataclass(obj):
        return {field.name for field in fields(obj)}
    if what in ("class", "function", "method", "exception"):
        try:
            return set(inspect.signature(obj).parameters)
        except (ValueError, TypeError):
            return set()
    return set()


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield paragraph
            paragraph = []


def _split(text: str, names: set[str]) -> tuple[str, list[str]]:
    """What stands before the first explained parameter, and a field for each of them."""
    starts = [start for start in _starts(text) if set(start[2]) <= names]
    if not starts:
        return text, []
    found = []
    ends = [start[0] for start in starts[1:]] + [len(text)]
    for (_, after, chosen, shape), end in zip(starts, ends, strict=True):
        first, *others = chosen
        meaning = f"{shape} {text[after:end]}".strip(" ;")
        found.append(f":param {first}: {_marked(meaning)}")
        found += [f":param {other}: See ``{first}``." for other in others]
    return text[: starts[0][0]].strip(), found


def _starts(text: str) -> Iterator[tuple[int, int, list[str], str]]:
    """Where an explanation may begin: its place, where its text begins, names, and a shape."""
    pattern = r"(?:^|(?<=[.;:)] ))((?:``)?\w+(?:``)?(?:, (?:``)?\w+(?:``)?)*)(?: (\([^()]*\)))?: "
    for match in re.finditer(pattern, text):
        chosen = match[1].replace("`", "").split(", ")
        yield match.start(), match.end(), chosen, match[2] or ""


def _marked(text: str) -> str:
    """Text in which shapes are literal, and nothing else means anything to reStructuredText."""
    parts = LITERAL.split(text)
    parts[::2] = [_marked_plain(part) for part in parts[::2]]
    return "".join(parts)


def _marked_plain(text: str) -> str:
    parts = SHAPE.split(text)
    parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"``{shape}``" for shape in parts[1::2]]
    return "".join(parts)
