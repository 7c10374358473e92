"""Recipes: files, the paper's rows, and what is refused."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

import boundlab as bl
from benchmarks.reached import text
from boundlab.data import SETS
from boundlab.data.sentences import SST
from boundlab.models import MODELS
from boundlab.models.text import TEXT_MODELS
from boundlab.training.entries import DATA, GROUPS, NETWORKS, TEXT_NETWORKS, entry_of
from boundlab.training.reached import FILE, reached
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import RECIPES, recipe_named


def test_recipes_survive_a_file(tmp_path: Path) -> None:
    for name, recipe in RECIPES.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(recipe.toml())
        assert Recipe.load(path) == recipe


def test_every_vision_row_of_the_paper_has_a_recipe() -> None:
    for model in ("cnn7-bn", "densenet", "wide-resnet", "resnext"):
        for short, method in (("ibp", "ibp"), ("lirpa", "crown-ibp")):
            cifar, tiny = (
                recipe_named(f"cifar10-{model}-{short}"),
                recipe_named(f"tiny-imagenet-{model}-{short}"),
            )
            assert (cifar.epochs, cifar.batch, cifar.start, cifar.length, cifar.milestones) == (
                2000,
                256,
                200,
                800,
                (1400, 1700),
            )
            assert (tiny.epochs, tiny.start, tiny.length, tiny.milestones, tiny.size) == (
                800,
                100,
                400,
                (600, 700),
                56,
            )
            assert (
                cifar.method == tiny.method == method
                and cifar.factor == tiny.factor == 1.1
                and cifar.lr == tiny.lr == 5e-4
                and cifar.clip == 8
            )
            assert cifar.eps == pytest.approx(8 / 255) and tiny.eps == pytest.approx(1 / 255)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"epoch": 3}, "no epoch.*Did you mean 'epochs'"),
        ({"optimizer": "adam"}, "no optimizer. Did you mean 'optimiser'"),
        ({"zzz": 1}, "no zzz. It has: adaptive_target"),
        ({"epochs": "3"}, "of type int"),
        ({"epochs": True}, "of type int"),
        ({"eps": -0.1}, "not be negative"),
        ({"data": "mnits"}, "data must be one of"),
        ({"model": "cnn"}, "model must be one of"),
        ({"beta": [1.0]}, "first and a last"),
        ({"beta": 1.0}, "list of numbers"),
        ({"kappa": [0.0, 2.0]}, "first and a last"),
        ({"batch": 0}, "positive"),
        ({"init": "zero"}, "init must be one of"),
    ],
)
def test_wrong_recipes(values: dict[str, object], text: str) -> None:
    with pytest.raises(bl.ArgumentError, match=text):
        Recipe.read(values)


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(bl.ArgumentError, match="no recipe"):
        Recipe.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("eps = = 3")
    with pytest.raises(bl.ArgumentError, match="not TOML"):
        Recipe.load(tmp_path / "bad.toml")
    for name, said in (
        ("mnist", "For mnist there are: mnist-0.1-ibp, "),
        ("MNIST-0.2", "For mnist there are: mnist-0.2-ibp, mnist-0.2-lirpa."),
        ("fashion", "For fashion-mnist there are: fashion-mnist-0.1-ibp, "),
        ("mnist-0.5-ibp", "For mnist there are: mnist-0.1-ibp, "),
        ("cifar10-cnn7-lirpa", "For cifar10 there are: cifar10-cnn7-bn-ibp, "),
        ("nmist-0.1-ibp", "Did you mean 'mnist-0.1-ibp'?"),
    ):
        with pytest.raises(bl.ArgumentError, match=re.escape(said)):
            recipe_named(name)


def test_names_of_sets_and_networks_are_those_that_exist() -> None:
    """They are kept as plain data, so that the command line can show them without torch."""
    assert (*SETS, SST) == DATA and tuple(MODELS) == NETWORKS
    assert tuple(TEXT_MODELS) == TEXT_NETWORKS


def test_every_entry_says_what_it_means(tmp_path: Path) -> None:
    for one in fields(Recipe):
        entry = entry_of(one)
        assert entry.group in GROUPS and 8 < len(entry.meaning) <= 90, one.name
    path = tmp_path / "explained.toml"
    for name in ("mnist-0.1-ibp", "flat-mnist"):
        path.write_text(recipe_named(name).toml(explained=True))
        assert Recipe.load(path) == recipe_named(name)
    strange = replace(Recipe(), name='a "b" \\ é', range=())
    path.write_text(strange.toml(), encoding="utf-8")
    assert Recipe.load(path) == strange


def test_own_models_and_data_have_names_of_their_own() -> None:
    assert Recipe(model="mine:make", data="some/file.NPZ").data == "some/file.NPZ"
    for wrong in ("mine:", ":make", "mine", "file.npz"):
        with pytest.raises(bl.ArgumentError, match=r"package\.module:factory, not"):
            Recipe(model=wrong)
    with pytest.raises(bl.ArgumentError, match="LOW < HIGH"):
        Recipe(range=(1.0, 0.0))


def test_what_recipes_reach_is_what_was_measured() -> None:
    assert FILE.read_text() == text(), "run python -m benchmarks.reached"
    found = reached()
    assert set(found) <= set(RECIPES) and found["mnist-0.1-ibp"].seeds == 3
    page = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    line = next(line for line in page.splitlines() if "mnist-0.2-ibp | 0" in line)
    once = found["mnist-0.2-ibp"]
    assert f"{once.clean_error:.2%}" in line and f"{once.verified_error:.2%}" in line
    assert once.minutes == (31, 31) and found["flat-mnist"].minutes is None
