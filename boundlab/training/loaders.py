"""A training run over batches that a user's loader gives, of a model that the user has made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from boundlab.data import as_values
from boundlab.errors import ArgumentError
from boundlab.training.networks import check_outputs
from boundlab.training.objective import Loss, Objective
from boundlab.training.recipe import Recipe
from boundlab.training.regularisers import ibp_initialisation
from boundlab.training.weights import FlatObjective

Batches = Iterable[tuple[Tensor, Tensor]]


class LoaderTask:
    """Batches (x, y) of a loader that can be gone through again and again. Before each epoch the
    global random generator is set by seed and epoch, for as long as the epoch lasts: a loader that
    shuffles by it gives the same batches in a run that goes on as in one that was never
    interrupted."""

    def __init__(
        self, model: nn.Module, loader: Batches, recipe: Recipe, loss: Loss | None = None
    ) -> None:
        if iter(loader) is loader:
            raise ArgumentError(
                "loader gives its batches only once: give a DataLoader or a list, which every "
                "epoch can go through"
            )
        self.model, self.recipe, self.loader = model, recipe, loader
        first = next(model.parameters(), torch.zeros(()))
        self.device, self.dtype = first.device, first.dtype
        self._count: int | None = None
        inputs, labels = self._first()
        self._shape, self._classes = list(inputs.shape[1:]), self._outputs(inputs)
        _check_labels(labels, len(inputs), self._classes)
        if recipe.init == "ibp":
            ibp_initialisation(model, recipe.seed)
        self.objective = self._objective(inputs[:2], loss)

    def _first(self) -> tuple[Tensor, Tensor]:
        for inputs, labels in self._seeded(0):
            return self._placed(inputs, labels)
        raise ArgumentError("loader gives no batches")

    def _outputs(self, inputs: Tensor) -> int:
        """How many classes the model tells apart."""
        was = self.model.training
        with torch.no_grad():
            check_outputs(self.model, inputs[:2], 1, "the model")
            found = int(self.model.eval()(inputs[:2]).shape[1])
        self.model.train(was)
        return found

    def _objective(self, example: Tensor, loss: Loss | None) -> nn.Module:
        if self.recipe.perturb == "inputs":
            return Objective(self.model, self.recipe, example, loss)
        if self.recipe.perturb == "weights" and loss is None:
            return FlatObjective(self.model, self.recipe, example)
        raise ArgumentError(
            "fit perturbs inputs, or weights with the recipe's own loss; the recipe "
            f"{self.recipe.name!r} perturbs {self.recipe.perturb}"
        )

    def steps(self, epoch: int) -> int:
        if self._count is None:
            try:
                self._count = len(self.loader)  # type: ignore[arg-type]
            except TypeError:  # it does not say: its batches are counted once
                self._count = sum(1 for _ in self._seeded(0))
        return self._count

    def batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        last = self.steps(epoch)
        for inputs, labels in islice(self._seeded(epoch), first, last):
            first += 1
            x, y = self._placed(inputs, labels)
            _check_labels(y, len(x), self._classes)
            yield x, y
        if first < last:
            raise ArgumentError(
                f"loader has given {first} batches in epoch {epoch}; it has {last} by its length, "
                "or had the first time"
            )

    def shapes(self) -> dict[str, Any]:
        return {"shape": self._shape, "classes": self._classes}

    def identity(self) -> dict[str, object]:
        return {"batches": self.steps(0)}

    def _seeded(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self.recipe.seed * 100_003 + epoch) * 1_000_003)
            yield from self.loader

    def _placed(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """A batch on the device of the model; bytes divided by 255."""
        if not isinstance(inputs, Tensor) or not isinstance(labels, Tensor):
            raise ArgumentError("loader must give pairs of tensors: inputs (N, ...), labels (N,)")
        order = torch.contiguous_format
        if self.recipe.channels_last and inputs.dim() == 4:
            order = torch.channels_last
        values = as_values(inputs.to(self.device)).to(self.dtype)
        return values.contiguous(memory_format=order), labels.to(self.device)


def _check_labels(labels: Tensor, count: int, classes: int) -> None:
    if labels.dtype != torch.int64 or labels.shape != (count,):
        raise ArgumentError(
            f"labels of a batch must be int64 ({count},), not {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    if count and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ArgumentError(
            f"labels must be 0 to {classes - 1}, as the model has {classes} outputs; a batch has "
            f"{int(labels.min())} to {int(labels.max())}"
        )
