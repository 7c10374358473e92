"""``boundlab recipes``: the built-in recipes, and what they were seen to reach."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.table import Table

from boundlab.commands.consoles import widened
from boundlab.commands.speaking import Json, out, write_json
from boundlab.training.reached import Reached, reached
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import by_data, recipe_named

NOTE = (
    "Errors are shares of all test samples, means of the seeds in brackets; verified error: the "
    "share that is not proved at eps (of words: for any 6 replaced; flat: how far the training "
    "loss can rise when weights move by 1 % of their norms). Minutes: on one thread of a machine "
    "that others used too. -: not measured. boundlab recipes NAME shows all entries."
)
COLUMNS = ("eps", "epochs", "clean error", "verified error", "minutes")


def recipes(options: argparse.Namespace) -> None:
    """List recipes, or show one."""
    known = reached()
    if options.recipe is not None:
        one = recipe_named(options.recipe)
        if options.json is None and not options.quiet:
            print(one.toml(explained=True), end="")
        write_json(options, {"recipes": [_document(one, known)]})
        return
    console = widened(out(options))
    for data, some in by_data().items():
        console.print(_table(data, some, known))
        console.print()
    console.print(NOTE, highlight=False)
    listed = [_document(one, known) for some in by_data().values() for one in some]
    write_json(options, {"recipes": listed})


def _document(recipe: Recipe, known: dict[str, Reached]) -> dict[str, Json]:
    """All entries of a recipe, and what it was seen to reach, if it was."""
    found = known.get(recipe.name)
    return {**recipe.as_dict(), "reached": None if found is None else asdict(found)}


def _table(data: str, recipes: list[Recipe], known: dict[str, Reached]) -> Table:
    table = Table(title=data, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in ("recipe", "network", "method"):
        table.add_column(column, no_wrap=column == "recipe")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for recipe in recipes:
        found = known.get(recipe.name)
        figures = ("-", "-", "-") if found is None else _figures(found)
        table.add_row(
            recipe.name, recipe.model, recipe.method, _radius(recipe), str(recipe.epochs), *figures
        )
    return table


def _radius(recipe: Recipe) -> str:
    """How far inputs, words or weights move."""
    if recipe.perturb == "words":
        return f"{recipe.budget} words"
    whole = recipe.eps * 255
    if recipe.data in ("mnist", "fashion-mnist") or abs(whole - round(whole)) > 1e-9:
        return f"{recipe.eps:g}"
    return f"{whole:.0f}/255"


def _figures(found: Reached) -> tuple[str, str, str]:
    """Clean error, verified error or rise of the loss, minutes."""
    clean = f"{found.clean_error:.2%}"
    claim, minutes = "-", "-"
    if found.verified_error is not None:
        claim = f"{found.verified_error:.2%}"
    elif found.loss_rise is not None:
        claim = f"rise {found.loss_rise:.3g}"
    if found.seeds > 1:
        claim += f" ({found.seeds})"
    if found.minutes is not None:
        least, most = found.minutes
        minutes = f"{least}" if least == most else f"{least} to {most}"
    return clean, claim, minutes
