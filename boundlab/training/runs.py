"""Trained networks from the folders of their runs. Of a checkpoint only numbers and texts are read;
no code is run that it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from boundlab.errors import ArgumentError
from boundlab.models import build
from boundlab.models.code import called, model_named
from boundlab.models.text import build_text
from boundlab.training.checkpoints import (
    CHECKPOINT,
    NETWORK,
    read_checkpoint,
    source_of,
    usable,
)
from boundlab.training.entries import OWN, SENTENCES, is_code
from boundlab.training.networks import behind
from boundlab.training.recipe import Recipe

Model = nn.Module | Callable[[], nn.Module] | str
"""A model of one's own: itself, what makes it, or ``package.module:factory``."""


@dataclass(frozen=True, eq=False)
class Run:
    """What a training run has left. model: in eval mode, normalisation included. shape: of a
    sample. source: where the training set came from."""

    model: nn.Module
    recipe: Recipe
    shape: tuple[int, ...]
    classes: int
    source: dict[str, Any]


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run, or its checkpoint."""
    if path.is_dir():
        return (path / CHECKPOINT).is_file()
    return path.name == CHECKPOINT and path.is_file()


def load_run(
    path: str | Path, model: Model | None = None, device: torch.device | str = "cpu"
) -> tuple[nn.Module, Recipe]:
    """The network of ``boundlab train`` or :func:`fit` in eval mode, normalisation included, and
    the recipe. path: the output folder, or a checkpoint. model: where the run trained a model of
    your own: the model, a function or class that makes it, or ``package.module:factory``; its code
    is run, never code that only the checkpoint names."""
    run = read_run(Path(path), model)
    return run.model.to(device), run.recipe


def read_run(path: Path, model: Model | None = None) -> Run:
    """What the run in a folder, or of a checkpoint, has left; see :func:`load_run`."""
    state = read_checkpoint(path, NETWORK)
    with usable(path):
        recipe = Recipe.read(state["recipe"])
    if recipe.data == SENTENCES:
        return _sentences(path, state, recipe)
    own = is_code(recipe.model) or recipe.model == OWN
    if own:
        body = _own(path, recipe, model)
    elif model is not None:
        raise ArgumentError(
            f"{path} is of the network {recipe.model}, which boundlab makes: leave out the model"
        )
    with usable(path):
        if own:
            shape = tuple(int(size) for size in state["shape"])
            found = _wrapped(body, state["model"], recipe, len(shape) - 1)
        else:
            channels, size = int(state["channels"]), int(state["size"])
            shape = (channels, size, size)
            numbers = (0.0,) * channels if recipe.normalise else None
            found = build(recipe.model, channels, size, state["classes"], numbers, numbers)
        found.load_state_dict(state["model"])
        source = source_of(state)
    return Run(found.eval(), recipe, shape, state["classes"], source)


def _wrapped(body: nn.Module, state: dict[str, Any], recipe: Recipe, dims: int) -> nn.Module:
    """A model of one's own as it was trained: by ``train`` behind a normalisation, by ``fit`` as it
    is."""
    if recipe.model == OWN:
        return body
    if not recipe.normalise:
        return behind(None, None, body, dims)
    numbers = [0.0] * state["0.mean"].numel()
    return behind(numbers, numbers, body, dims)


def _own(path: Path, recipe: Recipe, model: Model | None) -> nn.Module:
    """The model that the caller gives for a run of a model of their own."""
    if model is None:
        name = f", {recipe.model}" if is_code(recipe.model) else ""
        raise ArgumentError(
            f"{path} has trained a model of your own{name}: give it, by --model "
            "package.module:factory on the command line, by load_run(path, model=...) in Python. "
            "Its code is run only where you name it"
        )
    if isinstance(model, str):
        if not is_code(model):
            raise ArgumentError(f"a model by name is package.module:factory, not {model!r}")
        return model_named(model)
    if isinstance(model, nn.Module):
        return model
    made = called(model, "model", "a model")
    if not isinstance(made, nn.Module):
        raise ArgumentError(f"model() must return a torch.nn.Module, not {type(made).__name__}")
    return made


def _sentences(path: Path, state: dict[str, Any], recipe: Recipe) -> Run:
    """A classifier of sentences; its samples have no shape."""
    with usable(path):
        model = build_text(recipe.model, int(state["words"]), state["classes"])
        model.load_state_dict(state["model"])
        source = source_of(state)
    return Run(model.eval(), recipe, (), state["classes"], source)
