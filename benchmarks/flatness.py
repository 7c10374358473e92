"""The paper's experiment with perturbed weights: trains all cells, natural and flat, and writes
docs/flatness.md with its figures.

    python -m benchmarks.flatness --files DATA --runs RUNS [--threads N]     DATA holds mnist/ and
    fashion-mnist/, as make data leaves them python -m benchmarks.flatness
    only the page, from results that are there

Runs that are done are not done again; one that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from benchmarks.page import table
from benchmarks.timing import load as stored
from benchmarks.timing import save
from boundlab.commands.flatness import POINTS, REACH, Movement, measure, run_samples, tensors
from boundlab.data import load
from boundlab.losses.flatness import mean_loss_bound, weight_balls
from boundlab.net import capture
from boundlab.plot.style import INK, figure, legend_beside, per_cent
from boundlab.plot.style import save as save_figure
from boundlab.plot.surfaces import loss_surfaces
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import FLAT_BATCHES, FLAT_SETS, FLAT_SHARES, RECIPES
from boundlab.training.runs import read_run
from boundlab.training.trainer import Trainer
from boundlab.training.weights import surface

DOCS = Path(__file__).parent.parent / "docs"
EPS = 0.01
OBJECTIVES = {"natural": "natural", "flat": "crown-ibp"}
SHOWN = "mnist, 0.1, 0.1"
"""The cell whose surfaces the paper shows."""
PAPER = {  # Xu et al. 2020, table "flatness": natural and flat, by batch size 0.01 N, 0.1 N, N
    ("mnist", 0.1): ((2.79, 3.45, 4.55), (0.97, 1.12, 1.83)),
    ("mnist", 0.01): ((2.96, 3.85, 4.77), (1.10, 0.95, 1.44)),
    ("fashion-mnist", 0.1): ((7.89, 7.95, 9.60), (2.49, 1.81, 1.94)),
    ("fashion-mnist", 0.01): ((7.86, 6.43, 9.55), (2.52, 1.79, 1.98)),
}
TIGHT = ("ibp", "crown-ibp", "crown", "forward+backward")
FEW = 40
"""Training images of the comparison of methods: forward mode keeps a column for every weight."""


def cells() -> dict[str, Recipe]:
    found = {}
    for data in FLAT_SETS:
        for share in FLAT_SHARES:
            for part in FLAT_BATCHES:
                for objective, method in OBJECTIVES.items():
                    found[f"{data}, {share:g}, {part:g}, {objective}"] = replace(
                        RECIPES[f"flat-{data}-{share:g}-{part:g}"], method=method
                    )
    return found


def run(files: Path, runs: Path, only: str) -> None:
    for name, recipe in cells().items():
        if name in (stored("flatness") or {}) or not name.startswith(only):
            continue
        folder = runs / name.replace(", ", "-")
        data = load(recipe.data, files / recipe.data, "train")
        trainer = Trainer(recipe, data, folder)
        trainer.resume()
        with Progress() as progress:
            task = progress.add_task(name, total=recipe.epochs, completed=trainer.epoch)
            show = partial(progress.update, task)
            trainer.run(lambda step, show=show: show(completed=step.epoch))
        trainer.save()
        run = read_run(folder)
        model = run.model
        some, test = run_samples(run, files / recipe.data)
        found = measure(model, some, test, Movement(EPS, ("crown-ibp", "crown")))
        found["one_by_one"] = _one_by_one(model, *tensors(some)) - found["loss"]
        if name.rsplit(", ", 1)[0] == SHOWN:
            few = some.first(FEW)
            found["tightness"] = measure(model, few, test, Movement(EPS, TIGHT))
            found["surface"] = _surface(model, *tensors(some)).tolist()
        save("flatness", {**(stored("flatness") or {}), name: found})


def _one_by_one(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> float:
    """The mean of the bounds of single samples: every sample with the weights that are worst for
    it."""
    net = capture(model, x[:2])
    balls = weight_balls(net, EPS)
    with torch.no_grad():
        margins = torch.cat(
            [
                net.margins(part, y, method="crown-ibp", perturb=balls)
                for part, y in zip(x.split(500), labels.split(500), strict=True)
            ]
        )
        return float(torch.logsumexp(torch.cat([torch.zeros(len(x), 1), -margins], 1), 1).mean())


def _surface(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    balls = weight_balls(capture(model, x[:2]), EPS)
    return surface(model, x, labels, balls, POINTS, REACH)


def bound_at_once(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> float:
    """The bound of the mean loss over the shared balls."""
    net = capture(model, x[:2])
    with torch.no_grad():
        return float(mean_loss_bound(net, x, labels, perturb=weight_balls(net, EPS)))


# -- the page --------------------------------------------------------------------------------------

HEAD = """# Provably flat optima

Made by `python -m benchmarks.flatness` (the paper's experiment with perturbed weights). A three-layer MLP [64, 64, 10] is trained with SGD (0.1,
halved five times) on 10 % and 1 % of a training set, in batches of 0.01, 0.1 and 1 times what is taken of it, by the natural loss and by the *flat*
objective: the upper bound of the mean loss over Euclidean balls of radius 0.1 around all three weight matrices, the radius growing from 0 per batch.
The recipes are `flat-mnist-0.1-0.01` and so on (`boundlab train`); seed 0.

The certified flatness F is the upper bound of the mean training loss over balls of 1 % of the norm of each matrix, minus the loss. All samples see
the same weights, so the mean is bounded over the shared balls at once; "one by one" is the mean of the bounds of single samples, each with the
weights that are worst for it, which is what the paper's formula says. "Attack" is what gradient ascent on the weights inside the balls finds: F can
not be lower. `boundlab flatness RUN --files DIR` measures a trained network.

The paper states neither how long it trained nor which norm of a matrix it means nor how pixels were scaled: ours are 40, 200 and 1000 epochs for the
three batch sizes, the Frobenius norm, and pixels in [0, 1]. The longer a natural network trains, the larger its weights and its F, so the columns
are not the same experiment in every detail; what can be compared is how much the flat objective lowers F. A radius of 0.1 is a stronger demand where
the data are harder: on Fashion-MNIST it costs accuracy, on MNIST it adds some.
"""


def page(known: dict[str, Any]) -> str:
    parts = [HEAD]
    for data in FLAT_SETS:
        rows = []
        for share in FLAT_SHARES:
            for k, part in enumerate(FLAT_BATCHES):
                pair = [
                    known.get(f"{data}, {share:g}, {part:g}, {objective}")
                    for objective in OBJECTIVES
                ]
                if None in pair:
                    continue
                row = [f"{share:.0%}", f"{part:g} N"]
                for which, found in enumerate(pair):
                    assert found is not None
                    figures = (
                        found["flatness"]["crown"],
                        found["flatness"]["crown-ibp"],
                        found["one_by_one"],
                        found["attacked"],
                    )
                    row += [f"{value:.2f}" for value in figures] + [
                        f"{PAPER[data, share][which][k]:.2f}",
                        f"{1 - found['test_error']:.2%}",
                    ]
                rows.append(row)
        head = ["data", "batch"]
        for objective in OBJECTIVES:
            head += [
                f"{objective}: F by crown",
                "by crown-ibp",
                "crown-ibp, one by one",
                "attack",
                "F in the paper",
                "test accuracy",
            ]
        if rows:
            parts.append(f"\n## {data}\n\n" + "\n".join(table(head, rows)))
    compared = {
        objective: known.get(f"{SHOWN}, {objective}", {}).get("tightness")
        for objective in OBJECTIVES
    }
    if all(compared.values()):
        parts.append(_tightness(compared))
    parts.append(_conclusion(known))
    return "".join(parts)


def _tightness(compared: dict[str, Any]) -> str:
    rows = []
    for objective, found in compared.items():
        rows.append(
            [objective, f"{found['loss']:.3f}", f"{found['attacked']:.4f}"]
            + [f"{found['flatness'][method]:.4f}" for method in TIGHT]
        )
    head = ["objective", "loss", "attack", *TIGHT]
    return (
        f"\n## How tight\n\nF of the first {FEW} training images by each method, for the "
        "networks of MNIST, 10 %, 0.1 N.\n"
        "The attack is a lower limit. `forward+backward` bounds 8 images at once, and the mean "
        "of such bounds.\n\n" + "\n".join(table(head, rows))
    )


def _conclusion(known: dict[str, Any]) -> str:
    pairs = []
    for name, natural in known.items():
        cell, objective = name.rsplit(", ", 1)
        if objective == "natural" and f"{cell}, flat" in known:
            pairs.append((cell, natural, known[f"{cell}, flat"]))
    if not pairs:
        return ""
    lower = [
        name
        for name, natural, flat in pairs
        if flat["flatness"]["crown-ibp"] < natural["flatness"]["crown-ibp"]
    ]
    better = [name for name, natural, flat in pairs if flat["test_error"] < natural["test_error"]]
    worse = [name for name, natural, flat in pairs if flat["test_error"] >= natural["test_error"]]
    return (
        f"\n## What it shows\n\nThe flat objective lowers F in {len(lower)} of {len(pairs)} cells. "
        f"Test accuracy is higher with it in {len(better)} cells ({'; '.join(better) or 'none'}) "
        f"and not in {len(worse)} ({'; '.join(worse) or 'none'}).\n\n![test "
        "accuracy](flatness-accuracy.svg)\n\n![loss around the "
        "weights](flatness-surface.svg)\n\nThe surfaces: mean training loss of the networks of "
        "MNIST, 10 %, 0.1 N, along the gradient and a random direction, in units of the balls' "
        "radii; white: the circle in which the upper bound holds that crown certifies, which the title names.\n"
    )


def figures(known: dict[str, Any]) -> None:
    """Test accuracy of all cells, natural and flat, and the loss surfaces of the cell that is
    shown."""
    cells_shown = [(share, part) for share in FLAT_SHARES for part in FLAT_BATCHES]
    made, axes = figure(len(FLAT_SETS), 7.6, 2.9)
    places = range(len(cells_shown), 0, -1)
    for ax, data in zip(axes, FLAT_SETS, strict=True):
        accuracies = {
            objective: [
                1
                - known.get(f"{data}, {share:g}, {part:g}, {objective}", {}).get(
                    "test_error", math.nan
                )
                for share, part in cells_shown
            ]
            for objective in OBJECTIVES
        }
        ax.hlines(places, *accuracies.values(), color=INK, linewidth=0.8)
        for objective, values in accuracies.items():
            ax.plot(values, places, "o", markersize=5, label=objective)
        ax.set(xlabel="test accuracy", ylim=(0.4, len(cells_shown) + 0.6))
        ax.set_title(data, loc="left")
        ax.set_yticks(list(places), [""] * len(cells_shown))
        per_cent(ax.xaxis)
    axes[0].set_yticks(
        list(places),
        [f"{100 * share:g} % of the data, batch {part:g} N" for share, part in cells_shown],
    )
    legend_beside(axes[-1])
    save_figure(made, DOCS / "flatness-accuracy.svg")
    shown = {objective: known.get(f"{SHOWN}, {objective}") for objective in OBJECTIVES}
    if all(found is not None and "surface" in found for found in shown.values()):
        surfaces = {
            name: (torch.tensor(found["surface"]), found["loss"] + found["flatness"]["crown"])
            for name, found in shown.items()
            if found
        }
        loss_surfaces(surfaces, REACH, DOCS / "flatness-surface.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument(
        "--only", default="", metavar="PREFIX", help='cells whose names begin so, such as "mnist"'
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.files is not None:
        run(options.files, options.runs, options.only)
    known = stored("flatness") or {}
    figures(known)
    (DOCS / "flatness.md").write_text(page(known))


if __name__ == "__main__":
    main()
