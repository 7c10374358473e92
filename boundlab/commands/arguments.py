"""How commands read their arguments. Nothing of torch is needed here."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from boundlab.commands.speaking import STDOUT, json_target
from boundlab.defaults import TIMEOUT, norm_named
from boundlab.errors import ArgumentError
from boundlab.methods.method import method_name

Arguments: TypeAlias = argparse._ActionsContainer
"""A parser, or a group of its arguments; the type has no public name."""


def add_folder(parser: Arguments, name: str, help: str) -> None:
    """A folder that must be given."""
    parser.add_argument(name, type=Path, required=True, metavar="DIR", help=help)


def add_checkpoint(parser: Arguments) -> None:
    """What ``boundlab train`` left, the first argument of commands that go on from it."""
    parser.add_argument(
        "checkpoint",
        type=Path,
        metavar="RUN",
        help="the output folder of boundlab train, or a checkpoint in it",
    )


def add_count(parser: Arguments, name: str, help: str, default: int | None = None) -> None:
    """A whole number; the help ends with the default, if there is one."""
    if default is not None:
        help = f"{help} (default: {default})"
    parser.add_argument(name, type=int, default=default, metavar="N", help=help)


def add_numbers(parser: Arguments, name: str, metavar: str, help: str | None = None) -> None:
    """One or more numbers, in one part or in several (:func:`flat`)."""
    parser.add_argument(name, nargs="+", action="extend", type=numbers, metavar=metavar, help=help)


def add_methods(
    parser: Arguments, choices: Iterable[str], default: Sequence[str], note: str = ""
) -> None:
    """Methods by name, out of those that a command takes; note: what the help begins with."""
    shown = f"default: {' '.join(default)}"
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(default),
        type=method_name,
        choices=tuple(choices),
        metavar="METHOD",
        help=f"{note} ({shown})" if note else shown,
    )


def add_method(parser: Arguments, choices: Iterable[str], default: str) -> None:
    """One method by name."""
    parser.add_argument(
        "--method",
        default=default,
        type=method_name,
        choices=tuple(choices),
        metavar="METHOD",
        help=f"how bounds are found: {', '.join(choices)} (default: {default})",
    )


def add_timeout(parser: Arguments) -> None:
    """How long the method complete may take."""
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help=f"for each image that the method complete verifies (default: {TIMEOUT:g})",
    )


def add_arithmetic(parser: Arguments) -> None:
    """What proofs are to hold for."""
    parser.add_argument(
        "--arithmetic",
        choices=("real", "float32", "float64"),
        help="what a proof is to hold for: the network evaluated exactly, or as executed in that "
        "precision; rounding is then part of it (docs/floating-point.md)",
    )


def add_device(parser: Arguments, default: str | None = None) -> None:
    """Where to compute; default: None for a GPU if there is one."""
    parser.add_argument(
        "--device",
        default=default,
        metavar="DEVICE",
        help=f"where to compute, as torch names it (default: {default or 'a GPU if there is one'})",
    )


def add_threads(parser: Arguments, what: str = "threads") -> None:
    add_count(parser, "--threads", f"{what} (default: torch's choice)")


def add_resume(parser: Arguments) -> None:
    parser.add_argument(
        "--resume", action="store_true", help="go on from the results in the output folder"
    )


def add_ray(parser: Arguments) -> None:
    """Where to spread work, if anywhere."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="spread the work over a Ray cluster: its address, auto (this machine is a node of it) "
        "or local (one is started here)",
    )


def add_json(parser: Arguments, what: str = "what is printed") -> None:
    """For scripts: one document. what: it holds."""
    parser.add_argument(
        "--json",
        nargs="?",
        const=STDOUT,
        type=json_target,
        metavar="FILE",
        help=f"{what} as one JSON document in FILE, or alone on standard output",
    )


def add_other(parser: argparse.ArgumentParser) -> None:
    """What every command has."""
    other = parser.add_argument_group("other options")
    other.add_argument("-h", "--help", action="help", help="show this help and exit")
    loud = other.add_mutually_exclusive_group()
    loud.add_argument(
        "-q", "--quiet", action="store_true", help="print errors alone, and what --json asks for"
    )
    loud.add_argument(
        "-v", "--verbose", action="store_true", help="say what is being done on standard error"
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
        low, high = (number(text) for text in texts)
    except (ValueError, argparse.ArgumentTypeError):
        raise ArgumentError(
            f"--range takes two numbers, LOW HIGH, or the word none, not {' '.join(texts)!r}"
        ) from None
    return low, high
