"""Training with bars and a line an epoch on a terminal, and with TensorBoard if it is there."""

from __future__ import annotations

import importlib.util
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from boundlab.training.trainer import Progress as Step
from boundlab.training.trainer import Trainer


def follow(trainer: Trainer, console: Console) -> None:
    """Train with a bar for the run and one for the epoch."""
    board = _board(trainer)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as bars:
        run = bars.add_task("epochs", total=trainer.recipe.epochs, completed=trainer.epoch)
        epoch = bars.add_task("", total=trainer.steps, completed=trainer.step)

        def watch(step: Step) -> None:
            text = line(step.row)
            bars.update(epoch, total=step.steps, completed=step.step, description=text)
            if step.step == step.steps:
                bars.update(run, completed=step.epoch + 1)
                console.print(f"epoch {step.epoch + 1:4d}  {text}", highlight=False, soft_wrap=True)
                if board is not None:
                    for key, value in step.row.items():
                        board.add_scalar(key, value, step.epoch + 1)

        trainer.run(watch)


def line(row: dict[str, float]) -> str:
    """The figures of an epoch. eps: that of training at its end."""
    text = f"eps {row['eps']:.4f}  loss {row['loss']:.3f}  clean error {row['clean_error']:.2%}"
    if row["not_proved"] != row["not_proved"]:  # NaN: a loss of one's own does not say
        return text
    return f"{text}  not proved {row['not_proved']:.2%}"


def _board(trainer: Trainer) -> Any:
    if trainer.output is None or trainer.processes.rank:
        return None
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(trainer.output))
