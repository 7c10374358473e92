"""Collects trained and evaluated runs into docs/results.md, with one plot of training curves for
each task.

    boundlab train RECIPE --files DIR --output RUNS/NAME --seed N      for every run
    boundlab evaluate RUNS/NAME --files DIR
    python -m benchmarks.certified RUNS

Runs that were collected before stay in benchmarks/results/certified.json until a run of the same
recipe and seed replaces them.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from pathlib import Path
from typing import Any

from benchmarks.page import table
from benchmarks.timing import load, save
from boundlab.plot.style import INK, band, figure, label_ends, per_cent, ticks_at
from boundlab.plot.style import save as save_figure
from boundlab.training.evaluation import read_errors
from boundlab.training.metrics import METRICS, RECIPE
from boundlab.training.recipe import Recipe

DOCS = Path(__file__).parent.parent / "docs"
HEAD = """# Results of certified training

Made by `python -m benchmarks.certified` from runs of `boundlab train` and `boundlab evaluate`: the recipe of a row is its name, its settings are in
`boundlab/training/recipes.py`. Errors are shares of all test images; verified error, the share that is not verified, is by interval bounds (IBP) and by IBP,
then CROWN-IBP for the images that IBP leaves open. PGD: 40 steps, 2 random starts. "-lirpa" is LiRPA with loss fusion, mixed with IBP, beta from 1 to 0; "-ibp" is IBP.
Minutes are those of the training loop on one thread of a shared two-core machine, pauses and other work included; alone on it a run takes 9 to 13.

LiRPA with fusion ends lower than IBP in the mean of the seeds, but on MNIST by less than seeds differ: beta ends at 0, so that both minimise interval
bounds for the last 13 epochs, and the initialisation and warm-up terms of Shi et al., which both use, do for IBP what tighter bounds do at the
start of training without them.
"""


def collect(runs: Path, known: dict[str, Any]) -> dict[str, Any]:
    """By recipe and seed: settings, errors and the training curve."""
    for errors in sorted(runs.glob("*/errors.json")):
        recipe, found = Recipe.load(errors.parent / RECIPE), read_errors(errors)
        rows = list(csv.DictReader((errors.parent / METRICS).read_text().splitlines()))
        curve = {
            key: [float(row[key]) for row in rows] for key in ("eps", "clean_error", "not_proved")
        }
        minutes = sum(float(row["seconds"]) for row in rows) / 60
        known[f"{recipe.name}, seed {recipe.seed}"] = {
            "recipe": recipe.name, "seed": recipe.seed, "data": recipe.data, "model": recipe.model,
            "eps": found["eps"], "epochs": recipe.epochs,
            "images": found["count"], "clean": found["clean"], "attacked": found["attacked"],
            "verified_error": {key: 1 - share for key, share in found["verified"].items()},
            "minutes": minutes, "curve": curve,
        }  # fmt: skip
    return known


def task(name: str) -> str:
    return name.rsplit("-", 1)[0]


def rows_of(known: dict[str, Any]) -> list[list[str]]:
    rows, by_recipe = [], {}
    for row in known.values():
        by_recipe.setdefault(row["recipe"], []).append(row)
    for name, runs in sorted(by_recipe.items()):
        for row in sorted(runs, key=lambda run: run["seed"]):
            shares = [f"{row[key]:.2%}" for key in ("clean", "attacked")] + [
                f"{share:.2%}" for share in row["verified_error"].values()
            ]
            rows.append(
                [
                    name,
                    str(row["seed"]),
                    f"{row['eps']:.4g}",
                    row["model"],
                    str(row["epochs"]),
                    *shares,
                    f"{row['minutes']:.0f}",
                ]
            )
        if len(runs) > 1:
            keys = list(runs[0]["verified_error"])
            shares = [_middle([run[key] for run in runs]) for key in ("clean", "attacked")]
            shares += [_middle([run["verified_error"][key] for run in runs]) for key in keys]
            rows.append([name, f"mean of {len(runs)}", "", "", "", *shares, ""])
    return rows


def plot(name: str, runs: list[dict[str, Any]]) -> Path:
    """Training curves of a task: the share of the training images that are not verified, for each
    recipe the seeds as a band, and the radius."""
    made, (shares, radius) = figure(2, 7.2, 2.8)
    by_recipe: dict[str, list[dict[str, Any]]] = {}
    for row in runs:
        by_recipe.setdefault(row["recipe"], []).append(row)
    epochs = range(1, len(runs[0]["curve"]["eps"]) + 1)
    for recipe, rows in sorted(by_recipe.items()):
        curves = [row["curve"]["not_proved"] for row in rows]
        band(shares, epochs, curves, f"{recipe.removeprefix(name)[1:]}, {_seeds(len(rows))}")
    shares.set(xlabel="epoch", ylabel="training images", ylim=(0, None))
    shares.set_title(f"{name}: not verified by IBP", loc="left")
    per_cent(shares.yaxis)
    label_ends(shares)
    radius.plot(epochs, runs[0]["curve"]["eps"], color=INK)
    radius.set(xlabel="epoch", ylabel="ε (pixels in [0, 1])", ylim=(0, None))
    radius.set_title("radius in training", loc="left")
    path = DOCS / f"training-{name}.svg"
    save_figure(made, path)
    return path


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"


def _middle(values: list[float]) -> str:
    return f"{statistics.mean(values):.2%} ± {statistics.stdev(values):.2%}"


def tiny_imagenet(found: dict[str, Any]) -> list[str]:
    """One epoch with 200 classes: the loss of every step, and what it takes of memory."""
    steps = found["steps"]
    batch, size = found["batch"], found["largest_layer"]
    made, (axes,) = figure(width=7.2)
    at = [step["step"] for step in steps]
    axes.plot(at, [step["robust_loss"] for step in steps], label="bound, fused")
    axes.plot(at, [step["clean_loss"] for step in steps], label="clean")
    axes.axhline(math.log(found["classes"]), color=INK, linewidth=0.8, label="guessing")
    axes.set(xlabel="step", ylabel="cross entropy (nats)", yscale="log")
    axes.set_title("Tiny-ImageNet, CNN-7 with batch norm, 56x56", loc="left")
    ticks_at(axes.yaxis, (5, 10, 20))
    label_ends(axes)
    save_figure(made, DOCS / "training-tiny-imagenet.svg")
    ends = [
        statistics.mean(step["robust_loss"] for step in part)
        for part in (steps[1:6], steps[-20:-10], steps[-10:])
    ]
    clean = [
        statistics.mean(step["clean_loss"] for step in part) for part in (steps[1:6], steps[-10:])
    ]
    row = batch * size * 4 / 2**30
    classes, rise = found["classes"], steps[-1]["eps"]
    each = (
        f"{steps[-1]['seconds'] / len(steps):.0f} s a step on {found['threads']} "
        f"thread{'s' if found['threads'] > 1 else ''} of a busy machine."
    )
    return [
        "## One epoch on Tiny-ImageNet", "", "    python -m benchmarks.tiny_imagenet --files TINY "
"--output "
"RUN", "",
        f"{found['images']} images of {classes} classes in {len(steps)} steps of {batch}, "
"CNN-7 with batch norm, 56x56, LiRPA with loss fusion; eps",
        f"grows from 0 to {rise:.3g} (a seventh of the full recipe's last value), as at the "
"beginning of training. The bound of the loss falls",
        f"from {ends[0]:.3f} (steps 2 to 6) to {ends[1]:.3f} and {ends[2]:.3f} (the last but "
"ten, and the last ten steps), the clean loss from",
        f"{clean[0]:.3f} to {clean[1]:.3f}; guessing is log {classes} = "
f"{math.log(classes):.3f} (grey). {each}", "",
        f"The process never held more than {found['peak']:.1f} GiB. The largest layer has "
f"{size} numbers an image: one row of coefficients for",
        f"each of the {batch} images takes {row:.2f} GiB there, and without fusion, with a row "
f"for each of {classes - 1} margins,",
        f"{row * (classes - 1):.0f} GiB for this layer "
"alone.", "", "![loss by step on Tiny-ImageNet](training-tiny-imagenet.svg)", "",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs",
        type=Path,
        nargs="?",
        help=("folder of run folders; without it the page is made of what is known"),
    )
    options = parser.parse_args()
    known = load("certified") or {}
    if options.runs is not None:
        known = collect(options.runs, known)
        save("certified", known)
    header = [
        "recipe",
        "seed",
        "eps",
        "network",
        "epochs",
        "clean",
        "PGD",
        "verified, IBP",
        "verified, CROWN-IBP",
        "minutes",
    ]
    lines = [HEAD, *table(header, rows_of(known))]
    tasks: dict[str, list[dict[str, Any]]] = {}
    for row in known.values():
        tasks.setdefault(task(row["recipe"]), []).append(row)
    for name, runs in sorted(tasks.items()):
        lines += [f"![training curves of {name}]({plot(name, runs).name})", ""]
    epoch = load("tiny_imagenet")
    if epoch is not None:
        lines += tiny_imagenet(epoch)
    notes = DOCS / "results-notes.md"
    if notes.exists():
        lines.append(notes.read_text())
    (DOCS / "results.md").write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {DOCS / 'results.md'}")


if __name__ == "__main__":
    main()
