"""The text of VNN-LIB files: reading it, and what both versions write alike."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from pathlib import Path

from boundlab.errors import ArgumentError

LARGEST = 1 << 29
"""Bytes that a file may have when it is unpacked."""
DEEPEST = 200
"""How deep expressions may be nested."""
COMMENT = re.compile(r";[^\n]*")
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def read_text(path: Path) -> str:
    """The text of a file, packed by gzip or not."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ArgumentError(f"cannot be read: {error}") from None
    if len(content) > LARGEST:
        raise ArgumentError(f"has more than {LARGEST >> 20} MiB when it is unpacked")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise ArgumentError("is no text of ASCII characters") from None


def uncommented(text: str) -> str:
    """A text without its comments, line by line the same."""
    if "\0" in text:
        raise ArgumentError("there is a zero byte in the text")
    return COMMENT.sub("", text)


def read_number(word: str) -> float:
    """The number that a word is, in any notation, rounded to double precision."""
    if NUMBER.fullmatch(word) is None:
        raise ArgumentError(f"'{word[:40]}' is neither a number nor a variable")
    value = float(word)
    if not math.isfinite(value):
        raise ArgumentError(f"{word[:40]} is beyond double precision")
    return value
