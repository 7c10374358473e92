"""``boundlab evaluate``: error of a trained network, clean and attacked, and what is verified."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from boundlab.attacks import AttackSettings
from boundlab.commands.devices import device_named, set_threads
from boundlab.commands.speaking import out, progress, write_json
from boundlab.commands.words import evaluate_sentences
from boundlab.data import Samples
from boundlab.errors import ArgumentError
from boundlab.scaling.parts import parts_on
from boundlab.storage.files import write_atomically
from boundlab.training.checkpoints import folder_of, read_checkpoint
from boundlab.training.datasets import folder_for, samples_for_tests
from boundlab.training.entries import SENTENCES
from boundlab.training.evaluation import FORMAT, Errors, evaluate
from boundlab.training.metrics import ERRORS
from boundlab.training.processes import Processes
from boundlab.training.recipe import Recipe
from boundlab.training.runs import Run, read_run
from boundlab.verify.samples import COMPLETE, time_limit


def files_of(given: Path | None, source: object) -> Path | None:
    """Where the files of a set are: as given, or else where a checkpoint says that they were."""
    if given is not None or not isinstance(source, dict):
        return given
    known = source.get("files")
    return Path(known) if isinstance(known, str) else None


def samples_tested(run: Run, options: argparse.Namespace) -> Samples:
    """The test samples that a command is about."""
    given = getattr(options, "data", None)
    name = given or run.recipe.data
    files = files_of(options.files, run.source)
    return samples_for_tests(name, files, run.shape, alone=given is not None).first(options.limit)


def evaluate_run(options: argparse.Namespace) -> None:
    """Evaluate a trained network."""
    set_threads(options.threads)
    time_limit(options.timeout, options.methods)
    state = read_checkpoint(options.checkpoint)
    if state["recipe"].get("data") == SENTENCES:
        _sentences(options, state.get("source"))
        return
    run = read_run(options.checkpoint, options.model)
    eps = run.recipe.eps if options.eps is None else options.eps
    processes = Processes.here(device_named(options.device))
    if options.ray is not None and processes.count > 1:
        raise ArgumentError("--ray or torchrun, not both")
    try:
        data = samples_tested(run, options)
        found = _measured(run, data, eps, options, processes)
        if processes.rank == 0:
            _print(out(options), found, _table(found, run.recipe, eps, bool(options.restarts)))
            about = {
                "format": FORMAT, "recipe": run.recipe.name, "seed": run.recipe.seed, "eps": eps,
            }  # fmt: skip
            path = folder_of(options.checkpoint) / ERRORS
            content = {**about, **asdict(found)}
            write_atomically(path, json.dumps(content, indent=1) + "\n")
            write_json(options, content)
    finally:
        processes.leave()


def _sentences(options: argparse.Namespace, source: object) -> None:
    """What is left of the command for classifiers of sentences."""
    if COMPLETE in options.methods:
        raise ArgumentError(f"the method {COMPLETE!r} verifies images, not sentences")
    if options.ray is not None:
        raise ArgumentError("--ray spreads images, not sentences")
    options.files = folder_for(SENTENCES, files_of(options.files, source))
    evaluate_sentences(options)


def _measured(
    run: Run, data: Samples, eps: float, options: argparse.Namespace, processes: Processes
) -> Errors:
    """Evaluate with a bar."""
    quiet = processes.rank > 0
    columns = (TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=progress(options), transient=True, disable=quiet) as bar,
        parts_on(options.ray, processes.device) as spread,
    ):
        task = bar.add_task("", total=-(-len(data) // processes.count))
        return evaluate(
            run.model,
            data,
            eps,
            tuple(options.methods),
            AttackSettings(options.steps, options.restarts),
            valid=run.recipe.range,
            timeout=options.timeout,
            arithmetic=options.arithmetic,
            batch=options.batch,
            processes=processes,
            watch=lambda n: bar.advance(task, n),
            spread=spread,
        )


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
        title=(f"{recipe.name}: {found.count} test samples at eps {eps:.4g}"), title_justify="left"
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
