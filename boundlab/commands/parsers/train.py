"""The arguments of ``boundlab train``."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any, get_type_hints

from boundlab.commands.arguments import (
    add_count,
    add_device,
    add_folder,
    add_resume,
    add_threads,
    number,
    numbers,
)
from boundlab.commands.parser import Parser
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import RECIPES


def declare(parser: Parser) -> None:
    parser.description = (
        "Train by a recipe: a name or a TOML file, every entry of which can be set by a flag."
    )
    parser.epilog = (
        f"recipes: {', '.join(RECIPES)}. Many processes: torchrun --nproc-per-node N -m "
        "boundlab train ..."
    )
    what = parser.add_argument_group("what to train")
    what.add_argument("recipe", metavar="RECIPE", help="a recipe's name, or a TOML file")
    add_folder(what, "--files", "where the files of the data set are")
    add_folder(what, "--output", "folder for checkpoint, metrics and recipe")
    add_resume(what)
    add_threads(what, "threads of a process")
    add_count(what, "--limit", "only the first N training images")
    add_device(what)
    entries = parser.add_argument_group("entries of the recipe")
    kinds = get_type_hints(Recipe)
    for field in fields(Recipe):
        if field.name != "name":
            entries.add_argument(
                f"--{field.name}",
                metavar="VALUE",
                help=f"default of a recipe: {field.default}",
                **_flag(kinds[field.name]),
            )


def _flag(kind: Any) -> dict[str, Any]:
    """How the command line reads a value of a recipe."""
    if kind is bool:
        return {"type": _truth}
    if kind in (int, str):
        return {"type": kind}
    if kind is float:
        return {"type": number}
    return {"type": numbers}


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"
