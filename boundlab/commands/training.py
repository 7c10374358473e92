"""``boundlab train``."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rich.console import Console

from boundlab.commands.devices import device_named, set_threads
from boundlab.commands.parsers.train import entries
from boundlab.commands.speaking import say
from boundlab.errors import ArgumentError
from boundlab.training.checkpoints import CHECKPOINT, read_checkpoint, source_of, usable
from boundlab.training.datasets import training_set
from boundlab.training.entries import OWN, is_code
from boundlab.training.processes import Processes
from boundlab.training.progress import follow
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import recipe_given
from boundlab.training.trainer import Trainer


def train(options: argparse.Namespace) -> None:
    """Train by a recipe, or go on by the one that is stored."""
    exists = (options.output / CHECKPOINT).exists()
    if exists and not options.resume:
        raise ArgumentError(
            f"{options.output} already holds a checkpoint: give --resume to go on from it, or "
            "another --output"
        )
    recipe, source = _stored(options) if exists else _named(options)
    set_threads(options.threads)
    processes = Processes.here(device_named(options.device))
    try:
        _train_with(recipe, source, processes, options)
    finally:
        processes.leave()


def _train_with(
    recipe: Recipe, source: dict[str, Any], processes: Processes, options: argparse.Namespace
) -> None:
    output = options.output
    files = Path(source["files"]) if source["files"] else None
    data = training_set(recipe.data, files).first(source["limit"])
    trainer = Trainer(recipe, data, output, processes, source)
    resumed = trainer.resume()
    console = Console(quiet=options.quiet or processes.rank > 0)
    if recipe.factor != 1 and recipe.method != "natural":
        last, times = recipe.eps * recipe.factor, f"{recipe.factor:g} times"
        say(console, f"eps grows to {last:.4g}, {times} the radius that is tested")
    if resumed:
        say(console, f"going on from epoch {trainer.epoch}, step {trainer.step}")
    try:
        follow(trainer, console)
    except KeyboardInterrupt:
        again = " ".join(["boundlab train --resume --output", str(output), *_code(recipe).values()])
        where = f"epoch {trainer.epoch}, step {trainer.step}"
        say(console, f"stopped in {where}; {again} goes on from there")
        raise
    say(console, f"Trained: {output / CHECKPOINT}")


# -- what is to be trained -------------------------------------------------------------------------


def _named(options: argparse.Namespace) -> tuple[Recipe, dict[str, Any]]:
    """The recipe that the command names, with its flags, and where its data are."""
    if options.recipe is None:
        raise ArgumentError(
            f"there is no checkpoint in {options.output} to go on from: name a RECIPE to begin"
        )
    recipe = Recipe.read(_given(options), recipe_given(options.recipe))
    return recipe, _source(options.files, options.limit)


def _source(files: Path | None, limit: int | None) -> dict[str, Any]:
    return {"files": str(files.absolute()) if files is not None else None, "limit": limit}


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The entries of a recipe that flags name."""
    values = {one.name: getattr(options, one.name) for one in entries()}
    given = {key: value for key, value in values.items() if value is not None}
    if "milestones" in given:
        given["milestones"] = [_epoch(epoch) for epoch in given["milestones"]]
    return given


def _epoch(number: float) -> int:
    if number != int(number):
        raise ArgumentError(f"--milestones takes whole numbers of epochs, not {number:g}")
    return int(number)


def _stored(options: argparse.Namespace) -> tuple[Recipe, dict[str, Any]]:
    """The recipe of the checkpoint in the output folder, and where its data are. Whatever the
    command gives beside must be the same, but for epochs and for where files are."""
    path = options.output / CHECKPOINT
    state = read_checkpoint(path)
    with usable(path):
        recipe, known = Recipe.read(state["recipe"]), source_of(state)
    given = _given(options)
    wanted, named = Recipe.read(given, recipe), set(given)
    if options.recipe is not None:
        wanted = Recipe.read({"epochs": recipe.epochs, **given}, recipe_given(options.recipe))
        named = {"model", "data"}
    _check_code(path, recipe, named)
    changed = recipe.differences(wanted)
    if options.limit is not None and options.limit != known["limit"]:
        was = known["limit"] or "none"
        changed = ", ".join([*filter(None, [changed]), f"limit ({was}, now {options.limit})"])
    if changed:
        raise ArgumentError(
            f"{path} is of a recipe with other {changed}. --resume goes on with the stored recipe: "
            "leave out RECIPE and the flags that differ, or give another --output"
        )
    files = options.files or (Path(known["files"]) if known["files"] else None)
    return wanted, _source(files, known["limit"])


def _check_code(path: Path, recipe: Recipe, named: Collection[str]) -> None:
    """An error if a checkpoint names code that the command does not name: a checkpoint never says
    what is run. named: entries of the recipe that the command gives."""
    if OWN in (recipe.model, recipe.data):
        raise ArgumentError(
            f"{path} is of boundlab.fit: run the script again, with the same output, to go on"
        )
    left = [flag for key, flag in _code(recipe).items() if key not in named]
    if left:
        raise ArgumentError(
            f"{path} was trained with code of your own, which is run only where the command names "
            f"it: add {' '.join(left)}"
        )


def _code(recipe: Recipe) -> dict[str, str]:
    """The flags that name code of the user's own, by entry of the recipe."""
    values = {"model": recipe.model, "data": recipe.data}
    return {key: f"--{key} {value}" for key, value in values.items() if is_code(value)}
