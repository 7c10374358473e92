"""Certified training of one's own model from Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from torch import nn

from boundlab.training.entries import OWN
from boundlab.training.loaders import Batches, LoaderTask
from boundlab.training.objective import Loss
from boundlab.training.processes import Processes
from boundlab.training.progress import follow
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import recipe_given
from boundlab.training.trainer import Trainer


def fit(
    model: nn.Module,
    loader: Batches,
    recipe: Recipe | str | Path,
    *,
    output: str | Path | None = None,
    loss: Loss | None = None,
    progress: bool = True,
) -> nn.Module:
    """Train a model by a recipe; the model itself, in eval mode, with its trained weights.

    loader: batches (x, y) that every epoch can go through again, x (N, ...) floating point or bytes
    (divided by 255), y int64 (N,); they are moved to the device of the model. recipe: a name, the
    path of a TOML file, or a :class:`Recipe`. Its entries about data and network are not used, but
    for ``range`` and ``init``: with ``init="ibp"`` weights are drawn anew, with "default" training
    begins with those of the model. Batch norms take the statistics of the clean batch; dropout is
    off.

    output: a folder for checkpoint, metrics and recipe. If it holds a checkpoint of the same
    recipe, training goes on from there. loss: a robust loss instead of the recipe's, (net, region,
    labels, clean pass) -> one number, or one for each sample; eps of the region grows by the
    recipe. progress: show bars and a line an epoch.
    """
    chosen = replace(recipe_given(recipe), data=OWN, model=OWN)
    task = LoaderTask(model, loader, chosen, loss)
    where = Path(output) if output is not None else None
    trainer = Trainer(chosen, task, where, Processes(device=task.device))
    resumed = trainer.resume()
    console = Console(quiet=not progress)
    if resumed:
        console.print(f"going on from epoch {trainer.epoch}, step {trainer.step}")
    follow(trainer, console)
    return model.eval()
