"""The networks that recipes name: boundlab's and the user's own, behind a normalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from boundlab.errors import ArgumentError, CaptureError
from boundlab.models import Normalise, build
from boundlab.models.code import describe, model_named
from boundlab.training.entries import is_code

Numbers = Sequence[float] | None


def network(name: str, shapes: Mapping[str, Any], mean: Numbers, std: Numbers) -> nn.Sequential:
    """A network by name, or of one's own by ``package.module:factory``, whose code is run; behind a
    normalisation by channel if mean and standard deviation are given. shapes: what
    :meth:`boundlab.training.tasks.Task.shapes` says."""
    if not is_code(name):
        return build(name, **shapes, mean=_tuple(mean), std=_tuple(std))
    return behind(mean, std, model_named(name), len(shapes["shape"]) - 1)


def behind(mean: Numbers, std: Numbers, body: nn.Module, dims: int) -> nn.Sequential:
    """A network behind a normalisation, or behind nothing; dims: how many dimensions a channel of
    a sample has."""
    if mean is None or std is None:
        return nn.Sequential(nn.Identity(), body)
    return nn.Sequential(Normalise(mean, std, dims), body)


def check_outputs(model: nn.Module, example: Tensor, classes: int, name: str) -> None:
    """Run a network once, on an example (2, ...): it must give a logit for every class."""
    was = model.training
    try:
        with torch.no_grad():
            found = model.eval()(example)
    except Exception as error:
        raise CaptureError(
            f"{name} does not run on inputs of shape {tuple(example.shape)}: {describe(error)}"
        ) from error
    finally:
        model.train(was)
    if not isinstance(found, Tensor) or found.dim() != 2 or len(found) != len(example):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ArgumentError(
            f"{name} must give logits (samples, classes) for inputs {tuple(example.shape)}; it "
            f"gives {shape}"
        )
    if found.shape[1] < classes:
        raise ArgumentError(
            f"{name} gives {found.shape[1]} logits a sample; the training set has {classes} classes"
        )


def _tuple(numbers: Numbers) -> tuple[float, ...] | None:
    if numbers is None:
        return None
    return tuple(numbers)
