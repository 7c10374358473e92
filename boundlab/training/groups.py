"""Folders of training runs, the seeds of a recipe together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from boundlab.errors import ArgumentError
from boundlab.training.metrics import RECIPE
from boundlab.training.recipe import Recipe


def by_recipe(runs: Sequence[Path]) -> dict[str, list[Path]]:
    """Folders by what their runs are called: those together whose recipes differ in nothing but the
    seed, by the name of the recipe; with the name of a folder where several recipes go by one
    name."""
    if not runs:
        raise ArgumentError("there are no runs: give folders that boundlab train has made")
    found: dict[Recipe, list[Path]] = {}
    for run in dict.fromkeys(runs):
        if not (run / RECIPE).is_file():
            raise ArgumentError(f"{run} is not the folder of a training run: it has no {RECIPE}")
        found.setdefault(replace(Recipe.load(run / RECIPE), seed=0), []).append(run)
    names = [recipe.name for recipe in found]
    labels: dict[str, list[Path]] = {}
    for recipe, folders in found.items():
        label = recipe.name
        if names.count(label) > 1:
            label = f"{label} ({folders[0].name})"
        if label in labels:
            label = f"{recipe.name} ({folders[0]})"
        labels[label] = folders
    return labels
