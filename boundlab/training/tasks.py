"""What a training run trains: a network, the loss of a batch, and the samples of an epoch. The loop
knows no more of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from boundlab.data import Samples, as_values
from boundlab.data.images import Set
from boundlab.data.sentences import PADDING, Sentences
from boundlab.errors import ArgumentError
from boundlab.models.text import build_text
from boundlab.training.entries import is_code
from boundlab.training.networks import check_outputs, network
from boundlab.training.objective import Objective
from boundlab.training.processes import Processes
from boundlab.training.recipe import Recipe
from boundlab.training.regularisers import ibp_initialisation
from boundlab.training.weights import FlatObjective
from boundlab.training.words import STEP, WordsObjective, trimmed


class Task(Protocol):
    """objective: (*batch, weights) -> the loss and its four figures, as
    :class:`boundlab.training.objective.Objective`."""

    model: nn.Module
    objective: nn.Module

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has."""
        ...

    def batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of this process's share of every batch of an epoch, from one on: the
        same ones whenever they are asked for."""
        ...

    def shapes(self) -> dict[str, Any]:
        """What it takes to build the network again, for checkpoints."""
        ...

    def identity(self) -> dict[str, object]:
        """What tells the training set from others."""
        ...


def task_for(recipe: Recipe, data: Samples | Sentences | Task, processes: Processes) -> Task:
    """The task of training a recipe's network on a training set; a task is one already."""
    if isinstance(data, Sentences):
        return WordsTask(recipe, data, processes)
    if isinstance(data, Samples):
        return ImageTask(recipe, data, processes)
    return data


class SetTask(ABC):
    """What tasks have in common whose training set lies in memory: each epoch takes it in another
    order."""

    def __init__(self, recipe: Recipe, data: Samples | Sentences, processes: Processes) -> None:
        if recipe.batch % processes.count:
            raise ArgumentError(
                f"a batch of {recipe.batch} cannot be shared evenly by {processes.count} processes"
            )
        self.recipe, self.processes = recipe, processes
        self._data = data
        self._known: tuple[int, Tensor] | None = None

    @abstractmethod
    def order(self, epoch: int, generator: torch.Generator) -> Tensor:
        """The samples of an epoch in the order in which they are seen."""

    @abstractmethod
    def batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Inputs and labels of this process's share of a batch."""

    def steps(self, epoch: int) -> int:
        """Samples that do not fill a batch wait for another epoch."""
        count, batch = len(self._order(epoch)), self.recipe.batch
        if count < batch:
            raise ArgumentError(
                f"the training set has {count} samples, less than one batch of {batch}"
            )
        return count // batch

    def batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        order, size = self._order(epoch), self.recipe.batch
        own = size // self.processes.count
        start = self.processes.rank * own
        for step in range(first, self.steps(epoch)):
            batch = order[step * size : (step + 1) * size]
            yield self.batch(batch[start : start + own], self._generator(epoch, step + 1))

    def identity(self) -> dict[str, object]:
        return {"samples": len(self._data), "digest": self._data.digest}

    def _order(self, epoch: int) -> Tensor:
        if self._known is None or self._known[0] != epoch:
            self._known = epoch, self.order(epoch, self._generator(epoch, 0))
        return self._known[1]

    def _generator(self, epoch: int, step: int) -> torch.Generator:
        return torch.Generator().manual_seed(
            (self.recipe.seed * 100_003 + epoch) * 1_000_003 + step
        )


def share_of(recipe: Recipe, data: Set) -> Set:
    """The part of a training set that a recipe takes."""
    if recipe.share == 1:
        return data
    return data.first(max(1, round(recipe.share * len(data))))


def _check_form(recipe: Recipe, data: Samples) -> None:
    """An error if samples are not of the form that a network or a recipe takes."""
    if data.images.dim() == 4:
        return
    shape = tuple(data.images.shape)
    changes = [name for name in ("flip", "crop", "size") if vars(recipe)[name]]
    if changes:
        raise ArgumentError(
            f"{', '.join(changes)} of a recipe change images (n, channels, height, width); the "
            f"training set has the shape {shape}"
        )
    if not is_code(recipe.model):
        raise ArgumentError(
            f"{recipe.model} takes images (n, channels, height, width); the training set has the "
            f"shape {shape}: write grey images as (n, 1, height, width), or give a model of your "
            "own"
        )


class ImageTask(SetTask):
    """Images, cropped and mirrored at random, or other samples, whose values or whose network's
    weights are perturbed."""

    def __init__(self, recipe: Recipe, data: Samples, processes: Processes) -> None:
        super().__init__(recipe, data, processes)
        self.data = share_of(recipe, data)
        _check_form(recipe, self.data)
        torch.manual_seed(recipe.seed)
        self.model: nn.Module = self._network()
        if recipe.init == "ibp":
            ibp_initialisation(self.model, recipe.seed)
        self.model = self.model.to(processes.device)
        example = self.batch(torch.arange(2), torch.Generator().manual_seed(0))[0]
        check_outputs(self.model, example, self.data.classes, recipe.model)
        kind = FlatObjective if recipe.perturb == "weights" else Objective
        self.objective: nn.Module = kind(self.model, recipe, example)

    def _network(self) -> nn.Module:
        mean = std = None
        if self.recipe.normalise:
            mean, std = self.data.statistics()
            std = tuple(one or 1.0 for one in std)  # what never varies is only shifted
        return network(self.recipe.model, self.shapes(), mean, std)

    def shapes(self) -> dict[str, Any]:
        images, classes = self.data.images, self.data.classes
        if is_code(self.recipe.model):
            size = self.recipe.size
            shape = [images.shape[1], size, size] if size else list(images.shape[1:])
            return {"shape": shape, "classes": classes}
        return {
            "channels": images.shape[1],
            "size": self.recipe.size or images.shape[2],
            "classes": classes,
        }

    def order(self, epoch: int, generator: torch.Generator) -> Tensor:
        return torch.randperm(len(self.data), generator=generator)

    def batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Values as networks take them: the same for a sample whichever process takes it."""
        device, recipe = self.processes.device, self.recipe
        images = as_values(self.data.images[indices].to(device))
        labels = self.data.labels[indices].to(device)
        if images.dim() != 4:
            return images, labels
        order = torch.channels_last if recipe.channels_last else torch.contiguous_format
        size, side = recipe.size or images.shape[2], images.shape[2]
        if not (recipe.flip or recipe.crop or size < side):
            return images.contiguous(memory_format=order), labels
        first = self.processes.rank * len(indices)
        flips = torch.rand(recipe.batch, generator=generator)[first : first + len(indices)] < 0.5
        shifts = torch.randint(
            0, side + 2 * recipe.crop - size + 1, (recipe.batch, 2), generator=generator
        )[first : first + len(indices)]
        if recipe.flip:
            images = torch.where(flips[:, None, None, None].to(device), images.flip(3), images)
        if recipe.crop:
            images = nn.functional.pad(images, [recipe.crop] * 4)
        rows = (shifts[:, :1] + torch.arange(size)).to(device)
        columns = (shifts[:, 1:] + torch.arange(size)).to(device)
        each = torch.arange(len(images), device=device)
        found = images.permute(0, 2, 3, 1)[
            each[:, None, None], rows[:, :, None], columns[:, None]
        ].permute(0, 3, 1, 2)
        return found.contiguous(memory_format=order), labels


class WordsTask(SetTask):
    """Sentences in which words are replaced: for some epochs a share of all phrases, drawn anew
    each time, then whole sentences."""

    def __init__(self, recipe: Recipe, data: Sentences, processes: Processes) -> None:
        if recipe.perturb != "words":
            raise ArgumentError(
                f"recipe {recipe.name!r}: of sentences the words are perturbed: "
                f'perturb = "words", not {recipe.perturb!r}'
            )
        super().__init__(recipe, data, processes)
        self.data = data
        self.device = processes.device
        torch.manual_seed(recipe.seed)
        self.model: nn.Module = build_text(recipe.model, len(data.vocabulary), data.classes).to(
            self.device
        )
        self.objective: nn.Module = WordsObjective(
            self.model, recipe, data.vocabulary.substitutes.to(self.device)
        )

    def shapes(self) -> dict[str, Any]:
        return {"words": len(self.data.vocabulary), "classes": self.data.classes}

    def order(self, epoch: int, generator: torch.Generator) -> Tensor:
        """At random, but with sentences of like lengths in the same batch: batches are cut to their
        longest sentence."""
        if epoch < self.recipe.phrases:
            chosen = torch.randperm(len(self.data), generator=generator)[
                : max(1, round(self.recipe.share * len(self.data)))
            ]
        else:
            whole = self.data.whole.nonzero().flatten()
            chosen = whole[torch.randperm(len(whole), generator=generator)]
        batch = self.recipe.batch
        end = len(chosen) // batch * batch
        full, rest = chosen[:end], chosen[end:]
        lengths = (self.data.words[full] != PADDING).sum(1)
        batches = full[(-(-lengths // STEP)).argsort(stable=True)].reshape(-1, batch)
        return torch.cat(
            [batches[torch.randperm(len(batches), generator=generator)].flatten(), rest]
        )

    def batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return trimmed(self.data.words[indices]).to(self.device), self.data.labels[indices].to(
            self.device
        )
