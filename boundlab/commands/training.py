"""``boundlab train`` and ``boundlab evaluate``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from torch import nn

from boundlab.attacks import AttackSettings
from boundlab.commands.devices import device_named, set_threads
from boundlab.commands.speaking import out, progress, say, write_json
from boundlab.commands.words import evaluate_sentences
from boundlab.data import Images, central_crop, load
from boundlab.data.sentences import SST, Sentences, load_sentences
from boundlab.errors import ArgumentError
from boundlab.models import build
from boundlab.scaling.parts import parts_on
from boundlab.storage.files import write_atomically
from boundlab.training.checkpoints import (
    CHECKPOINT,
    IMAGES,
    folder_of,
    read_checkpoint,
    usable,
)
from boundlab.training.evaluation import FORMAT, Errors, evaluate
from boundlab.training.processes import Processes
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import recipe_named
from boundlab.training.trainer import Progress as Step
from boundlab.training.trainer import Trainer
from boundlab.verify.samples import COMPLETE, time_limit

RESULT = "errors.json"


# -- train -----------------------------------------------------------------------------------------


def _recipe(options: argparse.Namespace) -> Recipe:
    is_file = options.recipe.endswith(".toml") or os.sep in options.recipe
    base = Recipe.load(options.recipe) if is_file else recipe_named(options.recipe)
    given = {
        field.name: getattr(options, field.name, None)
        for field in fields(Recipe)
        if field.name != "name"
    }
    values = {key: value for key, value in given.items() if value is not None}
    if "milestones" in values:
        values["milestones"] = [int(epoch) for epoch in values["milestones"]]
    return Recipe.read(values, base)


def train(options: argparse.Namespace) -> None:
    """Train by a recipe."""
    recipe = _recipe(options)
    set_threads(options.threads)
    processes = Processes.here(device_named(options.device))
    try:
        _train_with(recipe, processes, options)
    finally:
        processes.leave()


def _train_with(recipe: Recipe, processes: Processes, options: argparse.Namespace) -> None:
    if (options.output / CHECKPOINT).exists() and not options.resume:
        raise ArgumentError(
            f"{options.output} already holds a checkpoint: give --resume to go on from it, or "
            "another --output"
        )
    data: Images | Sentences
    if recipe.data == SST:
        data = load_sentences(options.files, "train")
    else:
        data = load(recipe.data, options.files, "train")
    trainer = Trainer(recipe, data.first(options.limit), options.output, processes)
    resumed = options.resume and trainer.resume()
    console = Console(quiet=options.quiet or processes.rank > 0)
    if resumed:
        console.print(f"going on from epoch {trainer.epoch}, step {trainer.step}")
    _follow(trainer, console)
    say(console, f"Trained: {options.output / CHECKPOINT}")


def _follow(trainer: Trainer, console: Console) -> None:
    """Train with a bar for the run and one for the epoch, one printed line an epoch, and
    TensorBoard if it is there."""
    board = _board(trainer)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as bars:
        run = bars.add_task("epochs", total=trainer.recipe.epochs, completed=trainer.epoch)
        epoch = bars.add_task("", total=trainer.steps, completed=trainer.step)

        def watch(step: Step) -> None:
            row = step.row
            text = (
                f"eps {row['eps']:.4f}  loss {row['loss']:.3f}  clean error "
                f"{row['clean_error']:.2%}  not proved {row['not_proved']:.2%}"
            )
            bars.update(epoch, completed=step.step, description=text)
            if step.step == step.steps:
                bars.update(run, completed=step.epoch + 1)
                console.print(f"epoch {step.epoch + 1:4d}  {text}", highlight=False)
                if board is not None:
                    for key, value in row.items():
                        board.add_scalar(key, value, step.epoch + 1)

        trainer.run(watch)


def _board(trainer: Trainer) -> Any:
    if trainer.output is None or trainer.processes.rank:
        return None
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(trainer.output))


# -- evaluate --------------------------------------------------------------------------------------


def load_trained(path: Path) -> tuple[nn.Sequential, Recipe, int]:
    """The network of a checkpoint in eval mode, its recipe, and the size of its images."""
    state = read_checkpoint(path, IMAGES)
    with usable(path):
        recipe = Recipe.read(state["recipe"])
        zeros = (0.0,) * state["channels"] if recipe.normalise else None
        model = build(
            recipe.model, state["channels"], state["size"], state["classes"], zeros, zeros
        )
        model.load_state_dict(state["model"])
    return model.eval(), recipe, state["size"]


def test_images(recipe: Recipe, files: Path, size: int, limit: int | None) -> Images:
    """The first ``limit`` test images of a recipe's data, the middle of each if the network takes
    smaller ones."""
    data = load(recipe.data, files, "test").first(limit)
    if size < data.images.shape[2]:
        return central_crop(data, size)
    return data


def evaluate_trained(options: argparse.Namespace) -> None:
    """Evaluate a trained network."""
    set_threads(options.threads)
    time_limit(options.timeout, options.methods)
    if read_checkpoint(options.checkpoint)["recipe"].get("data") == SST:
        if COMPLETE in options.methods:
            raise ArgumentError(f"the method {COMPLETE!r} verifies images, not sentences")
        if options.ray is not None:
            raise ArgumentError("--ray spreads images, not sentences")
        evaluate_sentences(options)
        return
    model, recipe, size = load_trained(options.checkpoint)
    eps = recipe.eps if options.eps is None else options.eps
    processes = Processes.here(device_named(options.device))
    if options.ray is not None and processes.count > 1:
        raise ArgumentError("--ray or torchrun, not both")
    try:
        data = test_images(recipe, options.files, size, options.limit)
        attack = AttackSettings(options.steps, options.restarts)
        columns = (TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        quiet = processes.rank > 0
        with (
            Progress(*columns, console=progress(options), transient=True, disable=quiet) as bar,
            parts_on(options.ray, processes.device) as spread,
        ):
            task = bar.add_task("", total=-(-len(data) // processes.count))
            found = evaluate(
                model,
                data,
                eps,
                tuple(options.methods),
                attack,
                timeout=options.timeout,
                batch=options.batch,
                processes=processes,
                watch=lambda n: bar.advance(task, n),
                spread=spread,
            )
        if processes.rank == 0:
            _print(out(options), found, _table(found, recipe, eps, bool(options.restarts)))
            about = {"format": FORMAT, "recipe": recipe.name, "seed": recipe.seed, "eps": eps}
            content = {**about, **asdict(found)}
            path = folder_of(options.checkpoint) / RESULT
            write_atomically(path, json.dumps(content, indent=1) + "\n")
            write_json(options, content)
    finally:
        processes.leave()


def _print(console: Console, found: Errors, table: Table) -> None:
    """The table, and the three outcomes if images were verified."""
    console.print(table)
    if COMPLETE in found.verified:
        said = (
            f"verified {found.proved:.2%}, falsified {found.attacked:.2%} (misclassified images "
            f"among them), open {found.open:.2%}"
        )
        console.print(said, soft_wrap=True, highlight=False)


def _table(found: Errors, recipe: Recipe, eps: float, attacked: bool) -> Table:
    table = Table(
        title=(f"{recipe.name}: {found.count} test images at eps {eps:.4g}"), title_justify="left"
    )
    table.add_column("")
    for name in ("images", "95 % interval"):
        table.add_column(name, justify="right")
    rows = {"clean error": found.clean}
    by = ["PGD"] * attacked + [COMPLETE] * (COMPLETE in found.verified)
    if by:
        rows[f"error under attack ({', '.join(by)})"] = found.attacked
    for method, share in found.verified.items():
        rows[f"verified by {method}"] = share
    for name, share in rows.items():
        low, high = found.interval(share)
        table.add_row(name, f"{share:.2%}", f"{low:.2%} ... {high:.2%}")
    return table
