"""The arguments of ``boundlab train`` and of the commands for what it leaves."""

from __future__ import annotations

import argparse
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_type_hints

from boundlab.commands.arguments import (
    add_checkpoint,
    add_count,
    add_folder,
    add_methods,
    add_ray,
    add_timeout,
    number,
    numbers,
)
from boundlab.commands.devices import add_device, add_threads
from boundlab.methods.method import METHODS
from boundlab.training.entries import GROUPS, Entry, entry_of, shown
from boundlab.training.recipe import Recipe
from boundlab.verify.samples import COMPLETE

TRAIN = (
    "Train by a recipe, every entry of which can be set by a flag. 'boundlab recipes' shows all "
    "recipes, 'boundlab recipes NAME' what one says. Code that --model or --data names is run."
)
MANY = "Many processes: torchrun --nproc-per-node N -m boundlab train ..."
OWN_MODEL = "package.module:factory, for a run of a model of your own; its code is run"


def train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        nargs="?",
        help="a recipe's name, or a TOML file; not needed with --resume",
    )
    add_files(parser, "the folder with the files of the data set, if boundlab reads it by name")
    add_folder(parser, "--output", "folder for checkpoint, metrics and recipe")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from the checkpoint in the output folder, by the recipe that is stored there",
    )
    add_threads(parser, "threads of a process")
    add_count(parser, "--limit", "only the first N training samples")
    add_device(parser)
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


def add_files(parser: argparse.ArgumentParser, help: str) -> None:
    """Where the files of a set are."""
    parser.add_argument("--files", type=Path, metavar="DIR", help=help)


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model of a run that trained one of the user's own."""
    parser.add_argument("--model", metavar="FACTORY", help=OWN_MODEL)


def evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    add_files(parser, "the folder with the files of the data set (default: that of the training)")
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="other test samples: a set by name, a file .npz, or package.module:factory, which is "
        "run (default: those of the run)",
    )
    add_model(parser)
    parser.add_argument("--eps", type=number, metavar="EPS", help="radius (default: the recipe's)")
    add_methods(parser, (*METHODS, COMPLETE), ("ibp", "crown-ibp"), "cheap ones first")
    add_timeout(parser)
    add_count(parser, "--steps", "steps of the attack", 40)
    add_count(parser, "--restarts", "random starts of the attack, 0 for none", 2)
    add_count(parser, "--batch", "samples at a time", 200)
    parser.add_argument(
        "--budgets",
        type=int,
        nargs="+",
        metavar="N",
        help=("of sentences: numbers of replaced words (default: 0 to 6)"),
    )
    add_count(parser, "--limit", "only the first N test samples")
    add_threads(parser, "threads of a process")
    add_ray(parser)
    add_device(parser)


def recipes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", metavar="NAME", nargs="?", help="show what this recipe says, as a TOML file"
    )


def curves_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="output folders of boundlab train, or of boundlab.fit",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the curves into this file, .svg, .png or .pdf (needs the extra plot)",
    )


def export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="the output folder of boundlab train or boundlab.fit"
    )
    parser.add_argument(
        "--onnx", type=Path, metavar="FILE", help="write an ONNX file (needs the extra onnx)"
    )
    parser.add_argument("--pt2", type=Path, metavar="FILE", help="write a program of torch.export")
    add_model(parser)
