"""Recipes by name: every vision row of the paper's tables at full scale, runs that a laptop's CPU
finishes, and flat losses.

The paper's settings (appendix, "Details on Large-Scale Certified Defense"): Adam with 5e-4,
gradients clipped at 8, eps ten percent above the tested one at the end, beta from 1 to 0 along with
eps, no clean loss in the robust phase.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from boundlab.errors import ArgumentError, did_you_mean
from boundlab.training.recipe import Recipe

PAPER_MODELS = ("cnn7-bn", "densenet", "wide-resnet", "resnext")
TINY_BATCHES = {"wide-resnet": 110}
"""Of Tiny ImageNet, where they are not the usual ones."""
SHORT = {"ibp": "ibp", "lirpa": "crown-ibp"}

_cifar = Recipe(
    data="cifar10", eps=8 / 255, epochs=2000, batch=256, milestones=(1400, 1700), start=200,
    length=800, factor=1.1, init="default",
    tightness=0, balance=0, flip=True, crop=4, channels_last=True,
)  # fmt: skip
_tiny = replace(
    _cifar,
    data="tiny-imagenet",
    eps=1 / 255,
    epochs=800,
    batch=120,
    milestones=(600, 700),
    start=100,
    length=400,
    size=56,
    crop=0,
)
_mnist = Recipe(model="small-cnn-bn", epochs=24, lr=1e-3, milestones=(17, 22), start=1, length=10)
_flat = Recipe(
    model="mlp", perturb="weights", eps=0.1, normalise=False, optimiser="sgd", lr=0.1, decay=0.5,
    schedule="linear", init="default",
    tightness=0, balance=0, clip=0, beta=(1.0, 1.0), method="crown-ibp",
)  # fmt: skip
_sst = Recipe(
    data="sst", perturb="words", eps=1.0, epochs=25, batch=32, milestones=(), schedule="linear",
    start=0, length=10, phrases=20, init="default",
    tightness=0, balance=0, clip=10, budget=6,
)  # fmt: skip
FLAT_SETS = {"mnist": 60_000, "fashion-mnist": 60_000}
FLAT_SHARES, FLAT_BATCHES = (0.1, 0.01), (0.01, 0.1, 1.0)
"""Of the training set, and of what is taken of it: the cells of the paper's table of flatness."""
FLAT_EPOCHS = {0.01: 40, 0.1: 200, 1.0: 1000}
_small_cifar = replace(_mnist, data="cifar10", flip=True, crop=2)


def flat(data: str, share: float, part: float) -> Recipe:
    """A loss that is flat in the weights, from a share of the data, in batches that are a part of
    that: the fewer steps an epoch has, the more epochs. A sixth of them is natural, then eps grows
    up to two thirds, then the learning rate falls."""
    epochs = FLAT_EPOCHS[part]
    milestones = tuple(round(epochs * at) for at in (0.7, 0.76, 0.82, 0.88, 0.94))
    batch = round(part * share * FLAT_SETS[data])
    named = replace(
        _flat,
        name=f"flat-{data}-{share:g}-{part:g}",
        data=data,
        share=share,
        batch=batch,
        epochs=epochs,
        milestones=milestones,
    )
    return replace(named, start=epochs / 6, length=epochs / 2)


def _table() -> dict[str, Recipe]:
    found: dict[str, Recipe] = {}

    def add(name: str, recipe: Recipe) -> None:
        for short, method in SHORT.items():
            found[f"{name}-{short}"] = replace(recipe, name=f"{name}-{short}", method=method)

    for model in PAPER_MODELS:
        add(f"cifar10-{model}", replace(_cifar, model=model))
        add(
            f"tiny-imagenet-{model}",
            replace(_tiny, model=model, batch=TINY_BATCHES.get(model, 120)),
        )
    scaled = replace(
        _tiny,
        data="downscaled-imagenet",
        model="wide-resnet",
        epochs=240,
        batch=110,
        milestones=(200, 220),
        length=80,
    )
    add("downscaled-imagenet-wide-resnet", scaled)
    add("mnist-0.1", replace(_mnist, eps=0.1, factor=2.0))
    add("mnist-0.2", replace(_mnist, eps=0.2, factor=1.5))
    add("mnist-0.3", replace(_mnist, eps=0.3))
    add("fashion-mnist-0.1", replace(_mnist, data="fashion-mnist", eps=0.1))
    for model, lr, share in (("transformer", 1e-4, 0.1), ("lstm", 1e-3, 0.06)):
        add(f"sst-{model}", replace(_sst, model=model, lr=lr))
        found[f"sst-{model}-alt"] = replace(
            _sst, name=f"sst-{model}-alt", model=model, lr=lr, budget=1, beta=(1.0, 1.0)
        )
        short = replace(
            found[f"sst-{model}-lirpa"],
            name=f"sst-{model}",
            lr=1e-3,
            epochs=10,
            milestones=(9,),
            start=1,
            length=4,
            phrases=7,
        )
        found[f"sst-{model}"] = replace(short, share=share)
    for data in FLAT_SETS:
        found[f"flat-{data}"] = replace(flat(data, 0.1, 0.1), name=f"flat-{data}")
        for share in FLAT_SHARES:
            for part in FLAT_BATCHES:
                found[f"flat-{data}-{share:g}-{part:g}"] = flat(data, share, part)
    add("cifar10-small-2", replace(_small_cifar, eps=2 / 255, factor=1.1))
    add("cifar10-small-8", replace(_small_cifar, eps=8 / 255, factor=1.1))
    return found


RECIPES = _table()


def by_data() -> dict[str, list[Recipe]]:
    """All recipes, those of a data set together."""
    found: dict[str, list[Recipe]] = {}
    for recipe in RECIPES.values():
        found.setdefault(recipe.data, []).append(recipe)
    return found


def recipe_named(name: str) -> Recipe:
    if name not in RECIPES:
        raise ArgumentError(
            f"there is no recipe {name!r}.{_advice(name)} 'boundlab recipes' shows all; or give a "
            "TOML file"
        )
    return RECIPES[name]


def recipe_given(given: Recipe | str | Path) -> Recipe:
    """A recipe itself, by its name, or from a TOML file."""
    if isinstance(given, Recipe):
        return given
    if isinstance(given, Path) or given.endswith(".toml") or os.sep in given:
        return Recipe.load(given)
    return recipe_named(given)


def _advice(name: str) -> str:
    """The recipes that may have been meant: those of a data set whose name a text begins with or
    that begins with it, or else the most similar one."""
    small = name.lower()
    for data, recipes in by_data().items():
        near = [recipe.name for recipe in recipes if recipe.name.startswith(small)]
        if small and (near or small.startswith(data)):
            names = near or [recipe.name for recipe in recipes]
            return f" For {data} there are: {', '.join(names)}."
    return did_you_mean(name, RECIPES)
