"""The training loop: one process or many, resumable at every step, the same weights whether
interrupted or not.

The order of the images and their crops and flips are functions of the seed and the epoch alone, so
a run that goes on from a checkpoint sees what the uninterrupted one would have seen. With several
processes each takes its share of every batch (:mod:`boundlab.training.processes`); all that differs
is the order of sums.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from boundlab.compat.private import pytree
from boundlab.data import Samples
from boundlab.data.sentences import Sentences
from boundlab.errors import ArgumentError
from boundlab.storage.files import write_atomically
from boundlab.training.checkpoints import (
    CHECKPOINT,
    NETWORK,
    RUN,
    check_optimiser,
    read_checkpoint,
    usable,
)
from boundlab.training.metrics import COLUMNS, RECIPE, write_row
from boundlab.training.objective import ScheduleValues, train_mode
from boundlab.training.processes import Processes
from boundlab.training.recipe import Recipe
from boundlab.training.schedules import Adaptive, Schedule, between
from boundlab.training.tasks import Task, task_for


@dataclass(frozen=True)
class Progress:
    """Shown after every step: epoch, step and steps of the epoch, and the running means of the
    epoch."""

    epoch: int
    step: int
    steps: int
    row: dict[str, float]


@dataclass(eq=False)
class Trainer:
    """recipe; the training set, or a task; where to write, None for nowhere; the processes that
    share the work; source: where the training set came from, for whoever goes on from a
    checkpoint."""

    recipe: Recipe
    data: Samples | Sentences | Task
    output: Path | None = None
    processes: Processes = field(default_factory=Processes)
    source: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        recipe = self.recipe
        self.task: Task = task_for(recipe, self.data, self.processes)
        self.device = self.processes.device
        self.model = self.task.model
        self.objective = self.task.objective
        self.epoch, self.step = 0, 0
        if not self.steps:
            raise ArgumentError("there are no batches to train on")
        self._step: Callable[..., tuple[Tensor, Tensor]] = self.objective
        if self.processes.count > 1:
            self._step = DistributedDataParallel(
                self.objective, device_ids=self.processes.device_ids
            )
        optimiser = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[recipe.optimiser]
        self.optimiser: torch.optim.Optimizer = optimiser(self.model.parameters(), lr=recipe.lr)
        self.schedule = Schedule(recipe.schedule, recipe.start, recipe.length)
        self.adaptive: Adaptive | None = None
        if recipe.schedule == "adaptive":
            steps = max(1, round(recipe.length * self.steps))
            self.adaptive = Adaptive(1 / steps, recipe.adaptive_target)
        self._sums = torch.zeros(6, dtype=torch.float64)
        self._seconds = 0.0

    @property
    def steps(self) -> int:
        """Steps of this epoch."""
        return self.task.steps(self.epoch)

    # -- the loop ----------------------------------------------------------------------------------

    def run(self, watch: Callable[[Progress], None] = lambda _: None) -> nn.Module:
        """Train to the end of the recipe from wherever it stands. Ctrl-C saves what is there and
        goes on up."""
        try:
            while self.epoch < self.recipe.epochs:
                self._epoch(watch)
        except KeyboardInterrupt:
            self.save()
            raise
        return self.model

    def _epoch(self, watch: Callable[[Progress], None]) -> None:
        recipe = self.recipe
        began, before = time.perf_counter(), self._seconds
        train_mode(self.model)
        for group in self.optimiser.param_groups:
            group["lr"] = recipe.lr * recipe.decay ** sum(
                self.epoch >= at for at in recipe.milestones
            )
        for inputs, labels in self.task.batches(self.epoch, self.step):
            weights = self.weights()
            self.optimiser.zero_grad(set_to_none=True)
            loss, seen = self._step(inputs, labels, weights)
            if not math.isfinite(float(loss.detach())):
                raise ArgumentError(
                    f"the loss is {float(loss.detach())} in epoch {self.epoch}, step "
                    f"{self.step}: try a smaller lr or a longer schedule"
                )
            loss.backward()
            if recipe.clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip)
            self.optimiser.step()
            self._count(loss.detach(), seen, len(labels))
            if self.adaptive is not None:
                self.adaptive.note(float(self.processes.mean(seen[1])))
            self.step += 1
            self._seconds = before + time.perf_counter() - began
            watch(Progress(self.epoch, self.step, self.steps, self._row(weights)))
        row = self._row(self.weights(end=True))
        self.epoch, self.step = self.epoch + 1, 0
        self._write(row)
        self._sums.zero_()
        self._seconds = 0.0
        self.save()

    def weights(self, end: bool = False) -> ScheduleValues:
        """What the schedules say now."""
        recipe = self.recipe
        progress = self.epoch + (1.0 if end else self.step / self.steps)
        share = self._share(progress)
        warms_up = recipe.method != "natural" and bool(recipe.tightness or recipe.balance)
        return ScheduleValues(
            eps=recipe.eps * recipe.factor * share,
            beta=between(*recipe.beta, share),
            kappa=between(*recipe.kappa, share),
            warm_up=1 - share if warms_up and progress < recipe.start + recipe.length else 0.0,
        )

    def _share(self, progress: float) -> float:
        """The share of the way that the schedule has gone at a progress in epochs."""
        if self.adaptive is None:
            return self.schedule.share(progress)
        if progress < self.recipe.start:
            return 0.0
        return self.adaptive.share

    # -- what is kept ------------------------------------------------------------------------------

    def _count(self, loss: Tensor, seen: Tensor, samples: int) -> None:
        clean, robust, wrong, open_ = seen.double().cpu()
        self._sums += torch.stack(
            [
                loss.double().cpu() * samples,
                clean * samples,
                robust * samples,
                wrong,
                open_,
                torch.tensor(float(samples)),
            ]
        )

    def _row(self, weights: ScheduleValues) -> dict[str, float]:
        loss, clean, robust, wrong, open_, samples = self._sums.tolist()
        n = max(samples, 1.0)
        rate = self.optimiser.param_groups[0]["lr"]
        values = (
            self.epoch,
            weights.eps,
            weights.beta,
            weights.kappa,
            rate,
            loss / n,
            clean / n,
            robust / n,
            wrong / n,
            open_ / n,
            self._seconds,
        )
        return dict(zip(COLUMNS, values, strict=True))

    def _write(self, row: dict[str, float]) -> None:
        """One line of metrics; lines of epochs that a resumed run does again are dropped."""
        if self.output is None or self.processes.rank:
            return
        write_row(self.output, row)

    def state(self) -> dict[str, Any]:
        """On the CPU: a checkpoint is of no device."""
        found: dict[str, Any] = pytree.tree_map_only(Tensor, Tensor.cpu, self._state())
        return found

    def _state(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.as_dict(), "data": self.task.identity(), "epoch": self.epoch,
            "step": self.step, "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(), "sums": self._sums, "seconds": self._seconds,
            "adaptive": self.adaptive and self.adaptive.state,
            "source": self.source, **self.task.shapes(),
        }  # fmt: skip

    def save(self) -> None:
        """Write a checkpoint, atomically; one process does."""
        if self.output is None or self.processes.rank:
            return
        buffer = io.BytesIO()
        torch.save(self.state(), buffer)
        write_atomically(self.output / CHECKPOINT, buffer.getvalue())
        write_atomically(self.output / RECIPE, self.recipe.toml())

    def resume(self) -> bool:
        """Go on from the checkpoint in the output directory; whether there is one. A checkpoint of
        another recipe is an error."""
        if self.output is None or not (self.output / CHECKPOINT).exists():
            return False
        path = self.output / CHECKPOINT
        shapes = self.task.shapes()
        state = read_checkpoint(
            path, {**NETWORK, **RUN, **{key: type(value) for key, value in shapes.items()}}
        )
        with usable(path):
            before = Recipe.read(state["recipe"])
        changed = before.differences(self.recipe)
        if changed:
            raise ArgumentError(
                f"{path} is of a recipe with other {changed}: give another --output, or the same "
                "recipe"
            )
        changed = _differences({**state, **state["data"]}, {**self.task.identity(), **shapes})
        if changed:
            raise ArgumentError(
                f"{path} is of other training data, {changed}: give the same --files and --limit, "
                "or another --output"
            )
        with usable(path):
            self._load(state)
        return True

    def _load(self, state: dict[str, Any]) -> None:
        if min(state["epoch"], state["step"]) < 0 or state["sums"].shape != self._sums.shape:
            raise ValueError(
                f"it stands at epoch {state['epoch']}, step {state['step']}, with "
                f"{state['sums'].numel()} sums"
            )
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        check_optimiser(self.optimiser)
        self.epoch, self.step = state["epoch"], state["step"]
        self._sums = state["sums"].double().cpu()
        self._seconds = float(state["seconds"])
        if self.adaptive is not None:
            self.adaptive.load(state["adaptive"])


def _differences(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """The entries that have changed, with both values; empty if none has."""
    changed = [key for key, value in now.items() if before.get(key) != value]
    return ", ".join(f"{key} ({before.get(key)}, now {now[key]})" for key in changed)
