"""How commands speak: tables on standard output, progress on standard error, and one JSON document
for scripts."""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from boundlab.storage.files import write_atomically

if TYPE_CHECKING:
    from rich.console import Console

STDOUT = "-"
Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | int | bool | None"


@contextmanager
def listening(options: argparse.Namespace) -> Iterator[None]:
    """Show what the library logs: warnings, with ``--verbose`` what it does, with ``--quiet``
    errors alone."""
    level = logging.WARNING
    if options.quiet:
        level = logging.ERROR
    elif options.verbose:
        level = logging.INFO
    logger = logging.getLogger("boundlab")
    handler, before = _Terminal(), logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Terminal(logging.StreamHandler):  # type: ignore[type-arg]
    """Lines on standard error."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("boundlab: %(message)s"))


def out(options: argparse.Namespace) -> Console:
    """Where results for people go: standard output, or standard error if a JSON document goes
    there; nowhere with ``--quiet``."""
    from rich.console import Console

    return Console(stderr=_takes_stdout(options), quiet=options.quiet)


def progress(options: argparse.Namespace) -> Console:
    """Where progress is shown: standard error, if it is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    console.quiet = options.quiet or not console.is_terminal
    return console


@contextmanager
def busy(options: argparse.Namespace, text: str) -> Iterator[None]:
    """Say what is being done for as long as it takes."""
    console = progress(options)
    if console.quiet:
        yield
        return
    with console.status(text):
        yield


def say(console: Console, text: str) -> None:
    """A line as it is: paths are neither wrapped nor coloured."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def write_json(options: argparse.Namespace, content: Mapping[str, Json]) -> None:
    """The document that ``--json`` asks for, if it was given. Numbers that JSON does not have are
    null."""
    if options.json is None:
        return
    text = json.dumps(finite(content), indent=1, allow_nan=False) + "\n"
    if options.json == STDOUT:
        sys.stdout.write(text)
    else:
        write_atomically(Path(options.json), text)


def finite(content: Json) -> Json:
    """NaN and infinity as None."""
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [finite(value) for value in content]
    return content


def json_target(text: str) -> str:
    """Where a document goes: "-" for standard output, or a file that may be written."""
    path = Path(text)
    if text != STDOUT and path.exists() and path.suffix != ".json":
        raise argparse.ArgumentTypeError(
            f"there is a file {text}, which is not replaced: give --json last, or --json - for "
            "standard output"
        )
    return text


def _takes_stdout(options: argparse.Namespace) -> bool:
    return getattr(options, "json", None) == STDOUT
