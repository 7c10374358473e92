"""``boundlab flatness``: how far the loss of a trained network can rise when its weights move."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from boundlab.commands.devices import device_named, set_threads
from boundlab.commands.speaking import busy, out, say, write_json
from boundlab.data import Samples, as_values
from boundlab.errors import ArgumentError
from boundlab.losses.flatness import flatness, weight_balls
from boundlab.net import capture
from boundlab.storage.files import write_atomically
from boundlab.training.checkpoints import folder_of
from boundlab.training.datasets import samples_for_tests, training_set
from boundlab.training.runs import Run, read_run
from boundlab.training.tasks import share_of
from boundlab.training.weights import attack_weights, surface

RESULT = "flatness.json"
BATCHES = {"forward": 8, "forward+backward": 8}
"""Samples at once for methods that keep a column for every weight."""


def tensors(data: Samples, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    return as_values(data.images.to(device)), data.labels.to(device)


@dataclass(frozen=True)
class Movement:
    """How far weights move, and what is asked of that. eps: the radius of the ball around each
    weight, relative: as a share of its norm. methods: of the certified rise. steps: of the
    attack."""

    eps: float
    methods: tuple[str, ...] = ("crown-ibp",)
    relative: bool = True
    steps: int = 20


def measure(
    model: nn.Module,
    data: Samples,
    test: Samples,
    movement: Movement,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Losses, certified flatness by each method, what an attack finds, and the error on the test
    set."""
    model = model.to(device)
    x, labels = tensors(data, device)
    net = capture(model, x[:2])
    eps, relative = movement.eps, movement.relative
    balls = weight_balls(net, eps, relative=relative)
    with torch.no_grad():
        loss = float(F.cross_entropy(model(x), labels))
        right = sum(
            int((model(part).argmax(1) == y).sum())
            for part, y in zip(*[t.split(1000) for t in tensors(test, device)], strict=True)
        )
        certified = {
            method: float(
                flatness(
                    net, x, labels, eps, relative=relative, method=method, batch=BATCHES.get(method)
                )
            )
            for method in movement.methods
        }
    worst, _ = attack_weights(model, x, labels, balls, steps=movement.steps)
    return {
        "samples": len(labels), "eps": eps, "relative": relative, "loss": loss,
        "attacked": worst - loss, "flatness": certified,
        "test_error": 1 - right / len(test),
    }  # fmt: skip


REACH, POINTS = 5.0, 41
"""How far surfaces are drawn, in radii of the balls, and in how many points each way."""


def check_drawing(path: Path) -> None:
    """Complain before any work is done if nothing can be drawn into this file."""
    from boundlab.plot.style import check_format

    check_format(path)


def run_samples(run: Run, files: Path | None) -> tuple[Samples, Samples]:
    """The training samples that a run has taken, and the test samples."""
    data = training_set(run.recipe.data, files)
    if not isinstance(data, Samples):
        raise ArgumentError("flatness is of classifiers of images, not of sentences")
    return share_of(run.recipe, data), samples_for_tests(run.recipe.data, files, run.shape)


def measure_flatness(options: argparse.Namespace) -> None:
    """Measure the flatness of a trained network."""
    set_threads(options.threads)
    if options.surface is not None:
        check_drawing(options.surface)
    device = device_named(options.device)
    run = read_run(options.checkpoint, options.model)
    model, recipe = run.model, run.recipe
    data, test = run_samples(run, options.files)
    data = data.first(options.limit)
    movement = Movement(options.eps, tuple(options.methods), not options.absolute, options.steps)
    console = out(options)
    with busy(options, "bounding the loss over the balls around the weights"):
        found = measure(model, data, test, movement, device)
    unit = "" if options.absolute else " of their norms"
    table = Table(
        title=f"{recipe.name}: weights moved by {options.eps:g}{unit}", title_justify="left"
    )
    table.add_column("")
    table.add_column("loss", justify="right")
    table.add_column("rise F", justify="right")
    table.add_row(f"mean of {found['samples']} training images", f"{found['loss']:.4f}", "")
    table.add_row(
        "found by attacking the weights",
        f"{found['loss'] + found['attacked']:.4f}",
        f"{found['attacked']:.4f}",
    )
    for method, rise in found["flatness"].items():
        table.add_row(f"certified by {method}", f"{found['loss'] + rise:.4f}", f"{rise:.4f}")
    console.print(table)
    console.print(f"test error {found['test_error']:.2%}")
    write_atomically(folder_of(options.checkpoint) / RESULT, json.dumps(found, indent=1) + "\n")
    if options.surface is not None:
        x, labels = tensors(data, device)
        balls = weight_balls(capture(model, x[:2]), movement.eps, relative=movement.relative)
        best = min(found["flatness"].values())
        from boundlab.plot.surfaces import loss_surfaces

        with busy(options, "drawing the loss around the weights"):
            values = surface(model, x, labels, balls, points=POINTS, reach=REACH)
            loss_surfaces({recipe.method: (values, found["loss"] + best)}, REACH, options.surface)
        say(console, f"Surface: {options.surface}")
    write_json(options, found)
