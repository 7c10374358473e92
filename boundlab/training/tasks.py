"""What a training run trains: a network, the loss of a batch, and the samples of an epoch. The loop
knows no more of it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from boundlab.data import Images
from boundlab.data.sentences import PADDING, Sentences
from boundlab.errors import ArgumentError
from boundlab.models import build
from boundlab.models.text import build_text
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

    def order(self, epoch: int, generator: torch.Generator) -> Tensor:
        """The samples of an epoch in the order in which they are seen."""
        ...

    def batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Inputs and labels of this process's share of a batch."""
        ...

    def shapes(self) -> dict[str, int]:
        """What it takes to build the network again, for checkpoints."""
        ...


def task_for(recipe: Recipe, data: Images | Sentences, processes: Processes) -> Task:
    if isinstance(data, Sentences):
        return WordsTask(recipe, data, processes)
    return ImageTask(recipe, data, processes)


def share_of(recipe: Recipe, data: Images) -> Images:
    """The part of a training set that a recipe takes."""
    if recipe.share == 1:
        return data
    return data.first(max(1, round(recipe.share * len(data))))


class ImageTask:
    """Images, cropped and mirrored at random, whose pixels or whose network's weights are
    perturbed."""

    def __init__(self, recipe: Recipe, data: Images, processes: Processes) -> None:
        self.recipe = recipe
        self.data = share_of(recipe, data)
        self.processes = processes
        torch.manual_seed(recipe.seed)
        mean, std = self.data.statistics() if recipe.normalise else (None, None)
        self.model: nn.Module = build(recipe.model, **self.shapes(), mean=mean, std=std)
        if recipe.init == "ibp":
            ibp_initialisation(self.model, recipe.seed)
        self.model = self.model.to(processes.device)
        kind = FlatObjective if recipe.perturb == "weights" else Objective
        self.objective: nn.Module = kind(
            self.model, recipe, self.batch(torch.arange(2), torch.Generator().manual_seed(0))[0]
        )

    def shapes(self) -> dict[str, int]:
        return {
            "channels": self.data.images.shape[1],
            "size": self.recipe.size or self.data.images.shape[2],
            "classes": self.data.classes,
        }

    def order(self, epoch: int, generator: torch.Generator) -> Tensor:
        return torch.randperm(len(self.data), generator=generator)

    def batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Pixels in [0, 1]: the same for an image whichever process takes it."""
        device, recipe = self.processes.device, self.recipe
        images = self.data.images[indices].to(device).float() / 255
        labels = self.data.labels[indices].to(device)
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


class WordsTask:
    """Sentences in which words are replaced: for some epochs a share of all phrases, drawn anew
    each time, then whole sentences."""

    def __init__(self, recipe: Recipe, data: Sentences, processes: Processes) -> None:
        if recipe.perturb != "words":
            raise ArgumentError(
                f"recipe {recipe.name!r}: of sentences the words are perturbed: "
                f'perturb = "words", not {recipe.perturb!r}'
            )
        self.recipe = recipe
        self.data = data
        self.device = processes.device
        torch.manual_seed(recipe.seed)
        self.model: nn.Module = build_text(recipe.model, len(data.vocabulary), data.classes).to(
            self.device
        )
        self.objective: nn.Module = WordsObjective(
            self.model, recipe, data.vocabulary.substitutes.to(self.device)
        )

    def shapes(self) -> dict[str, int]:
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
