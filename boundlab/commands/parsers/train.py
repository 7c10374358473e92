"""The arguments of ``boundlab train``: every entry of a recipe has a flag."""

from __future__ import annotations

import argparse
from dataclasses import Field, fields
from typing import Any, get_type_hints

from boundlab.commands.arguments import (
    add_count,
    add_device,
    add_folder,
    add_threads,
    number,
    numbers,
)
from boundlab.commands.parser import Parser
from boundlab.commands.parsers.runs import add_files
from boundlab.training.entries import GROUPS, Entry, entry_of, shown
from boundlab.training.recipe import Recipe


def declare(parser: Parser) -> None:
    parser.description = """\
Train by a recipe, every entry of which can be set by a flag. 'boundlab recipes' shows all recipes,
'boundlab recipes NAME' what one says. Code that --model or --data names is run."""
    parser.epilog = """\
examples:
  boundlab train mnist-0.3-lirpa --files data/mnist --output runs/a
  boundlab train mnist-0.1-ibp --files data/mnist --output runs/b --eps 0.2 --epochs 40
  boundlab train --resume --output runs/a
  torchrun --nproc-per-node 4 -m boundlab train mnist-0.1-ibp --files data/mnist --output runs/c"""
    what = parser.add_argument_group("what to train")
    what.add_argument(
        "recipe",
        metavar="RECIPE",
        nargs="?",
        help="a recipe's name, or a TOML file; not needed with --resume",
    )
    add_files(what, "the folder with the files of the data set, if boundlab reads it by name")
    add_count(what, "--limit", "only the first N training samples")
    output = parser.add_argument_group("output")
    add_folder(output, "--output", "folder for checkpoint, metrics and recipe")
    output.add_argument(
        "--resume",
        action="store_true",
        help="go on from the checkpoint in the output folder, by the recipe that is stored there",
    )
    how = parser.add_argument_group("how")
    add_threads(how, "threads of a process")
    add_device(how)
    for group, title in GROUPS.items():
        section = parser.add_argument_group(f"{title} (entries of the recipe)")
        for one in entries():
            if entry_of(one).group == group:
                _add_entry(section, one)


def entries() -> list[Field[Any]]:
    """The entries of a recipe that have a flag."""
    return [one for one in fields(Recipe) if one.name != "name"]


def _add_entry(section: Any, one: Field[Any]) -> None:
    kind, entry = get_type_hints(Recipe)[one.name], entry_of(one)
    flag = f"--{one.name.replace('_', '-')}"
    more = {
        "type": _reader(kind), "dest": one.name, "metavar": _metavar(kind, entry),
        "help": f"{meaning(entry)} (default of a recipe: {shown(one.default)})".replace("%", "%%"),
    }  # fmt: skip
    section.add_argument(flag, **more)
    if "_" in one.name:  # as the entry is called in a TOML file
        section.add_argument(f"--{one.name}", **{**more, "help": argparse.SUPPRESS})


def meaning(entry: Entry) -> str:
    """What an entry of a recipe means, with the texts that it may have where they are few."""
    if not entry.options:
        return entry.meaning
    return f"{entry.meaning}: {', '.join(entry.options)}"


def _metavar(kind: Any, entry: Entry) -> str:
    """What stands behind a flag: the unit of a number, or the type."""
    if entry.unit and kind in (int, float):
        return entry.unit.upper()
    names = {bool: "true|false", int: "N", float: "X", str: "NAME"}
    return names.get(kind, "A,B")


def _reader(kind: Any) -> Any:
    """How the command line reads a value of a recipe."""
    readers = {bool: _truth, int: int, str: str, float: number}
    return readers.get(kind, _list)


def _list(text: str) -> list[float]:
    """Numbers, or none."""
    if text.lower() == "none":
        return []
    return numbers(text)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"
