"""``boundlab recipes``: the built-in recipes, and what they were seen to reach."""

from __future__ import annotations

import argparse

from rich.table import Table

from boundlab.commands.arguments import Commands
from boundlab.commands.consoles import wide_console
from boundlab.commands.training_arguments import recipes_arguments
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


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "recipes", help="the built-in recipes of train, what they reach and how long they take"
    )
    parser.set_defaults(command=_recipes)
    recipes_arguments(parser)


def _recipes(options: argparse.Namespace) -> None:
    if options.recipe is not None:
        print(recipe_named(options.recipe).toml(explained=True), end="")
        return
    console, known = wide_console(), reached()
    for data, recipes in by_data().items():
        console.print(_table(data, recipes, known))
        console.print()
    console.print(NOTE, highlight=False)


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
