"""Recipes: files, the paper's rows, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundlab as bl
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
        ({"optimizer": "adam"}, "no optimizer.*Did you mean 'optimiser'"),
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
    with pytest.raises(
        bl.ArgumentError, match=r"'mnist'\. Did you mean 'mnist-0\.1-ibp'\?"
    ) as caught:
        recipe_named("mnist")
    assert all(name in str(caught.value) for name in RECIPES)
    assert "; for fashion-mnist: fashion-mnist-0.1-ibp, " in str(caught.value)
