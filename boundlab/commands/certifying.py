"""``boundlab demo`` and ``boundlab certify``: certify images, print a table, write a report."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from boundlab.commands.arguments import (
    Commands,
    add_count,
    add_numbers,
    flat,
    shape,
    value_range,
    words,
)
from boundlab.commands.arrays import load_data
from boundlab.commands.certificates import Certification
from boundlab.commands.certify import (
    DEFAULT_METHODS,
    NORMS,
    Job,
    certify_job,
    check_images,
    check_methods,
    check_radii,
)
from boundlab.commands.cuts import line_cuts
from boundlab.commands.devices import add_device, device_named
from boundlab.commands.ledger import refuse_to_replace
from boundlab.commands.loading import load_net
from boundlab.commands.report import page
from boundlab.demo import load_digits, load_model
from boundlab.errors import ArgumentError
from boundlab.net import Net, capture
from boundlab.storage.files import write_atomically

RESULTS, REPORT = "results.json", "index.html"
DEMO = "demo"
DEMO_RADII, EPS = (0.05, 0.1, 0.15), (2 / 255, 8 / 255)


def add_commands(commands: Commands) -> None:
    """The two commands with their arguments."""
    _add_demo(commands)
    _add_certify(commands)


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo", help=("certify digits with the network that ships with the package")
    )
    demo.set_defaults(command=_demo)
    add_numbers(demo, "--radii", "EPS", "radii in the maximum norm (default: 0.05 0.1 0.15)")
    add_count(demo, "--images", "how many of the 100 digits", 30)
    _common(demo)


def _add_certify(commands: Commands) -> None:
    job = commands.add_parser(
        "certify",
        help="certify a model of your own",
        description=(
            "Bound the margins of every image of DATA by every method at every radius, print how "
            "many are verified, and write a report."
        ),
        epilog=(
            "example: boundlab certify mypackage.models:small_cnn test.npz --weights best.pt --eps "
            "2/255 8/255 --mean 0.49 --std 0.25"
        ),
    )
    job.set_defaults(command=_certify)
    job.add_argument(
        "model",
        metavar="MODEL",
        help=(
            "package.module:factory, called without arguments, or a program saved with "
            "torch.export (.pt2)"
        ),
    )
    job.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help=(
            ".npz with images (or x) and labels (or y), or .csv with the label first; uint8 is "
            "divided by 255"
        ),
    )
    job.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help=("state dict for the model (read with weights_only=True)"),
    )
    job.add_argument(
        "--norm",
        choices=list(NORMS),
        default="inf",
        help=("norm of the ball around every image (default: inf)"),
    )
    add_numbers(job, "--eps", "EPS", "radii, fractions too (default: 2/255 8/255)")
    job.add_argument(
        "--range",
        nargs="+",
        default=["0", "1"],
        metavar=("LOW", "HIGH"),
        help=("valid values of an input, or none (default: 0 1)"),
    )
    add_numbers(job, "--mean", "M", "normalisation inside the model, one number or one per channel")
    add_numbers(job, "--std", "S")
    job.add_argument(
        "--shape",
        type=shape,
        metavar="C,H,W",
        help=("shape of one image, if the file does not have it"),
    )
    add_count(job, "--batch", "images at a time", 16)
    add_count(job, "--limit", "only the first N images")
    job.add_argument(
        "--resume", action="store_true", help="go on from the results in the output folder"
    )
    add_device(job, "cpu")
    _common(job)


def _common(parser: argparse.ArgumentParser) -> None:
    default = ", ".join(DEFAULT_METHODS)
    parser.add_argument(
        "--methods",
        nargs="+",
        action="extend",
        type=words,
        metavar="METHOD",
        help=f"default: {default}",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("boundlab-report"),
        metavar="DIR",
        help=("folder for the report (default: boundlab-report)"),
    )


@dataclass(frozen=True)
class _Output:
    """Where results and the report go, and what the report says above them."""

    folder: Path
    resume: bool
    title: str
    note: str


def _demo(options: argparse.Namespace) -> None:
    digits, labels = load_digits()
    if not 1 <= options.images <= len(digits):
        raise ArgumentError(f"--images must lie between 1 and {len(digits)}, not {options.images}")
    images = digits[: options.images].float() / 255
    job = Job(
        images,
        labels[: options.images],
        check_radii(flat(options.radii) or DEMO_RADII),
        _methods(options),
        valid=(0.0, 1.0),
        batch=10,
        name=DEMO,
    )
    _clear(options.output / RESULTS)
    note = (
        "Handwritten digits (MNIST test images), and the small convolutional network that "
        "ships with boundlab, trained with interval bounds."
    )
    output = _Output(options.output, False, "Certified digits", note)
    _run(job, capture(load_model(), images[:2]), output)


def _clear(path: Path) -> None:
    """Take away the results of another demo, and of nothing else."""
    try:
        if json.loads(path.read_text())["task"]["name"] == DEMO:
            path.unlink()
    except (OSError, ValueError, KeyError, TypeError):  # not a demo's
        pass
    if path.exists():
        raise ArgumentError(
            f"{path.parent} holds results that are not of a demo: give another --output"
        )


def _certify(options: argparse.Namespace) -> None:
    if not options.resume:
        refuse_to_replace(options.output / RESULTS)
    radii = check_radii(flat(options.eps) or EPS)
    methods = _methods(options)
    valid = value_range(options.range)
    device = device_named(options.device)
    values, labels = load_data(options.data, options.shape, options.limit)
    if values.dtype == torch.uint8:
        print("boundlab: the values are bytes (0 ... 255) and are divided by 255", file=sys.stderr)
    images = check_images(values, valid)
    name = f"{options.model} on {options.data.name}"
    job = Job(
        images,
        labels,
        radii,
        methods,
        norm=options.norm,
        valid=valid,
        batch=options.batch,
        device=device,
        name=name,
    )
    net = load_net(
        options.model,
        images,
        weights=options.weights,
        mean=flat(options.mean),
        std=flat(options.std),
        device=device,
    )
    _run(job, net, _Output(options.output, options.resume, "Certified robustness", name))


def _methods(options: argparse.Namespace) -> tuple[str, ...]:
    if options.methods is None:
        return DEFAULT_METHODS
    return check_methods([method for part in options.methods for method in part])


def _run(job: Job, net: Net, output: _Output) -> None:
    """Certify with a progress bar, print the table, write the report."""
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("images"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        shown = bar.add_task("", total=len(job.methods) * len(job.radii) * len(job.images))
        finished: dict[tuple[str, float], int] = {}

        def progress(method: str, radius: float, done: int, _: int) -> None:
            finished[method, radius] = done
            bar.update(
                shown, completed=sum(finished.values()), description=f"{method} at {radius:.3g}"
            )

        found = certify_job(
            net, job, results=output.folder / RESULTS, resume=output.resume, progress=progress
        )
    console.print(_table(found))
    cuts = line_cuts(net, found, job.images, found.radii[len(found.radii) // 2], job.device)
    report = output.folder / REPORT
    write_atomically(report, page(found, job.images, cuts, output.title, note=output.note))
    console.print(f"Report: {report}", soft_wrap=True, markup=False, highlight=False)


def _table(found: Certification) -> Table:
    correct = int(found.correct.sum())
    title = f"{correct} of {len(found.labels)} images are classified correctly"
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for name in ("radius", "verified", "mean margin", "seconds per image"):
        table.add_column(name, justify="right")
    for row in found.rows:
        last = row.radius == found.radii[-1]
        table.add_row(
            row.method,
            f"{row.radius:.3g}",
            f"{row.share:.1%}",
            f"{row.mean_margin:.3f}",
            f"{row.seconds:.4f}",
            end_section=last,
        )
    return table
