"""How commands read their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from boundlab.commands.parser import Parser
from boundlab.errors import ArgumentError
from boundlab.methods.method import method_name
from boundlab.regions.norms import norm_named
from boundlab.verify.portfolio import TIMEOUT

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""Where a command adds its parser; the type has no public name."""


def add_folder(parser: argparse.ArgumentParser, name: str, help: str) -> None:
    """A folder that must be given."""
    parser.add_argument(name, type=Path, required=True, metavar="DIR", help=help)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """What ``boundlab train`` left, the first argument of commands that go on from it."""
    parser.add_argument(
        "checkpoint",
        type=Path,
        metavar="DIR",
        help="the output folder of boundlab train, or a checkpoint in it",
    )


def add_count(
    parser: argparse.ArgumentParser, name: str, help: str, default: int | None = None
) -> None:
    """A whole number; the help ends with the default, if there is one."""
    if default is not None:
        help = f"{help} (default: {default})"
    parser.add_argument(name, type=int, default=default, metavar="N", help=help)


def add_numbers(
    parser: argparse.ArgumentParser, name: str, metavar: str, help: str | None = None
) -> None:
    """One or more numbers, in one part or in several (:func:`flat`)."""
    parser.add_argument(name, nargs="+", action="extend", type=numbers, metavar=metavar, help=help)


def add_methods(
    parser: argparse.ArgumentParser, choices: Iterable[str], default: Sequence[str], note: str = ""
) -> None:
    """Methods by name, out of those that a command takes; note: what the help begins with."""
    shown = f"default: {' '.join(default)}"
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(default),
        type=method_name,
        choices=choices,
        metavar="METHOD",
        help=f"{note} ({shown})" if note else shown,
    )


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """How long the method complete may take."""
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help=f"for each image that the method complete verifies (default: {TIMEOUT:g})",
    )


def add_ray(parser: argparse.ArgumentParser) -> None:
    """Where to spread work, if anywhere."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help=(
            "spread the work over a Ray cluster: its address, auto for the one that this machine "
            "is a node of, local for one that is started here"
        ),
    )


def words(text: str) -> list[str]:
    """``crown,ibp`` as a list."""
    return [word for word in text.split(",") if word]


def numbers(text: str) -> list[float]:
    """One or more numbers, "0.1", "8/255" or "0.1,0.2"."""
    found = []
    for word in words(text):
        above, _, below = word.partition("/")
        try:
            found.append(float(above) / float(below or 1))
        except (ValueError, ZeroDivisionError):
            raise argparse.ArgumentTypeError(f"{word!r} is not a number") from None
    return found


def number(text: str) -> float:
    """One number, "0.1" or "8/255"."""
    found = numbers(text)
    if len(found) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not one number")
    return found[0]


def norm(text: str) -> str:
    """``inf``, ``linf`` or ``L2`` as the name of a norm."""
    try:
        return norm_named(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def shape(text: str) -> tuple[int, ...]:
    """``3,32,32`` as a shape."""
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape like 3,32,32")
    return sizes


def flat(lists: Sequence[list[float]] | None) -> list[float] | None:
    """The numbers of an option that was given in several parts; None if it was not given."""
    if lists is None:
        return None
    return [value for part in lists for value in part]


def value_range(texts: Sequence[str]) -> tuple[float, float] | None:
    """``LOW HIGH`` as numbers; None for the word none."""
    if list(texts) == ["none"]:
        return None
    try:
        low, high = (float(text) for text in texts)
    except ValueError:
        raise ArgumentError(
            f"--range takes two numbers, LOW HIGH, or the word none, not {' '.join(texts)!r}"
        ) from None
    return low, high
