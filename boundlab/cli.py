"""The command line: ``boundlab demo``, ``certify``, ``train``, ``evaluate``, ``flatness``,
``words`` and ``ops``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

from boundlab.commands.certificates import Certification
from boundlab.commands.certify import (
    DEFAULT_METHODS,
    NORMS,
    certify,
    check_images,
    check_methods,
    check_radii,
)
from boundlab.commands.cuts import line_cuts
from boundlab.commands.devices import add_device, device_named
from boundlab.commands.flatness import add_command as add_flatness
from boundlab.commands.ledger import refuse_to_replace
from boundlab.commands.loading import load_data, load_net
from boundlab.commands.operators import markdown, supported
from boundlab.commands.report import write_report
from boundlab.commands.training import add_commands
from boundlab.commands.words import add_command as add_words
from boundlab.demo import load_digits, load_model
from boundlab.errors import ArgumentError, BoundlabError
from boundlab.net import Net, capture
from boundlab.version import VERSION

RESULTS, REPORT = "results.json", "index.html"
DEMO = "demo"
DEMO_RADII, EPS = (0.05, 0.1, 0.15), (2 / 255, 8 / 255)


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns 0, 1 for an error that boundlab explains, 2 for wrong usage, 130
    after Ctrl-C."""
    try:
        options = _parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed help, the version or what is wrong
        return int(end.code or 0)
    command: Callable[[argparse.Namespace], None] = options.command
    try:
        command(options)
        sys.stdout.flush()
        return 0
    except BoundlabError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        _fail(_interrupted(options))
        return 130
    except BrokenPipeError:  # the reader has seen enough: keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(f"{error.filename}: {error.strerror}")
    except (MemoryError, RuntimeError) as error:
        if not _about_memory(error):
            raise
        return _fail("out of memory: give a smaller --batch, or a cheaper method (ibp, crown-ibp)")


def _fail(message: str) -> int:
    print(f"boundlab: {' '.join(message.split())}", file=sys.stderr)
    return 1


def _interrupted(options: argparse.Namespace) -> str:
    output = getattr(options, "output", None)
    if output is None or not (output / RESULTS).exists():
        return "interrupted"
    hint = ""
    if hasattr(options, "resume"):
        hint = "; the same command with --resume goes on from there"
    return f"interrupted; what was computed so far is in {output / RESULTS}{hint}"


def _about_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "out of memory" in text
        or "can't allocate memory" in text
    )


# -- arguments -------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="boundlab", description=("Provable bounds on the outputs of PyTorch models.")
    )
    parser.add_argument("--version", action="version", version=f"boundlab {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo", help=("certify digits with the network that ships with the package")
    )
    demo.set_defaults(command=_demo)
    demo.add_argument(
        "--radii",
        nargs="+",
        action="extend",
        type=_numbers,
        metavar="EPS",
        help=("radii in the maximum norm (default: 0.05 0.1 0.15)"),
    )
    demo.add_argument(
        "--images",
        type=int,
        default=30,
        metavar="N",
        help="how many of the 100 digits (default: 30)",
    )
    _common(demo)

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
    job.add_argument(
        "--eps",
        nargs="+",
        action="extend",
        type=_numbers,
        metavar="EPS",
        help="radii, fractions too (default: 2/255 8/255)",
    )
    job.add_argument(
        "--range",
        nargs="+",
        default=["0", "1"],
        metavar=("LOW", "HIGH"),
        help=("valid values of an input, or none (default: 0 1)"),
    )
    job.add_argument(
        "--mean",
        nargs="+",
        action="extend",
        type=_numbers,
        metavar="M",
        help=("normalisation inside the model, one number or one per channel"),
    )
    job.add_argument("--std", nargs="+", action="extend", type=_numbers, metavar="S")
    job.add_argument(
        "--shape",
        type=_shape,
        metavar="C,H,W",
        help=("shape of one image, if the file does not have it"),
    )
    job.add_argument(
        "--batch", type=int, default=16, metavar="N", help="images at a time (default: 16)"
    )
    job.add_argument("--limit", type=int, metavar="N", help="only the first N images")
    job.add_argument(
        "--resume", action="store_true", help="go on from the results in the output folder"
    )
    add_device(job, "cpu")
    _common(job)

    add_commands(commands, _numbers)
    add_flatness(commands)
    add_words(commands)

    table = commands.add_parser("ops", help="list the supported operators")
    table.set_defaults(command=_ops)
    table.add_argument("--markdown", action="store_true", help="as a Markdown page")
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    default = ", ".join(DEFAULT_METHODS)
    parser.add_argument(
        "--methods",
        nargs="+",
        action="extend",
        type=_words,
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


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _numbers(text: str) -> list[float]:
    """One or more numbers, "0.1", "8/255" or "0.1,0.2"."""
    found = []
    for word in _words(text):
        above, _, below = word.partition("/")
        try:
            found.append(float(above) / float(below or 1))
        except (ValueError, ZeroDivisionError):
            raise argparse.ArgumentTypeError(f"{word!r} is not a number") from None
    return found


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape like 3,32,32")
    return sizes


def _flat(lists: Sequence[list[float]] | None) -> list[float] | None:
    return None if lists is None else [value for part in lists for value in part]


def _range(words: Sequence[str]) -> tuple[float, float] | None:
    if list(words) == ["none"]:
        return None
    try:
        low, high = (float(word) for word in words)
    except ValueError:
        raise ArgumentError(
            f"--range takes two numbers, LOW HIGH, or the word none, not {' '.join(words)!r}"
        ) from None
    return low, high


# -- commands --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Job:
    """What both certifying commands ask for, checked before anything slow begins."""

    images: Tensor
    labels: Tensor
    radii: tuple[float, ...]
    methods: tuple[str, ...]
    norm: str
    valid: tuple[float, float] | None
    batch: int
    device: torch.device
    output: Path
    resume: bool
    name: str


def _demo(options: argparse.Namespace) -> None:
    digits, labels = load_digits()
    if not 1 <= options.images <= len(digits):
        raise ArgumentError(f"--images must lie between 1 and {len(digits)}, not {options.images}")
    images = digits[: options.images].float() / 255
    job = _Job(
        images=images,
        labels=labels[: options.images],
        radii=check_radii(_flat(options.radii) or DEMO_RADII),
        methods=_methods(options),
        norm="inf",
        valid=(0.0, 1.0),
        batch=10,
        device=torch.device("cpu"),
        output=options.output,
        resume=False,
        name=DEMO,
    )
    _clear(options.output / RESULTS)
    note = (
        "Handwritten digits (MNIST test images), and the small convolutional network that "
        "ships with boundlab, trained with interval bounds."
    )
    _run(job, capture(load_model(), images[:2]), "Certified digits", note)


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
    radii = check_radii(_flat(options.eps) or EPS)
    methods = _methods(options)
    valid = _range(options.range)
    device = device_named(options.device)
    values, labels = load_data(options.data, options.shape, options.limit)
    if values.dtype == torch.uint8:
        print("boundlab: the values are bytes (0 ... 255) and are divided by 255", file=sys.stderr)
    images = check_images(values, valid)
    name = f"{options.model} on {options.data.name}"
    job = _Job(
        images=images,
        labels=labels,
        radii=radii,
        methods=methods,
        norm=options.norm,
        valid=valid,
        batch=options.batch,
        device=device,
        output=options.output,
        resume=options.resume,
        name=name,
    )
    net = load_net(
        options.model,
        images,
        weights=options.weights,
        mean=_flat(options.mean),
        std=_flat(options.std),
        device=device,
    )
    _run(job, net, "Certified robustness", name)


def _methods(options: argparse.Namespace) -> tuple[str, ...]:
    if options.methods is None:
        return DEFAULT_METHODS
    return check_methods([method for part in options.methods for method in part])


def _run(job: _Job, net: Net, title: str, note: str) -> None:
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

        found = certify(
            net,
            job.images,
            job.labels,
            job.radii,
            job.methods,
            norm=job.norm,
            valid=job.valid,
            batch=job.batch,
            device=job.device,
            results=job.output / RESULTS,
            resume=job.resume,
            progress=progress,
            name=job.name,
        )
    console.print(_table(found))
    cuts = line_cuts(net, found, job.images, found.radii[len(found.radii) // 2], job.device)
    write_report(job.output / REPORT, found, job.images, cuts, title=title, note=note)
    console.print(f"Report: {job.output / REPORT}", soft_wrap=True, markup=False, highlight=False)


def _table(found: Certification) -> Table:
    correct = int(found.correct.sum())
    title = f"{correct} of {len(found.labels)} images are classified correctly"
    table = Table(title=title, title_justify="left")
    for name, side in (
        ("method", "left"),
        ("radius", "right"),
        ("verified", "right"),
        ("mean margin", "right"),
        ("seconds per image", "right"),
    ):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
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


def _ops(options: argparse.Namespace) -> None:
    if options.markdown:
        print(markdown(), end="")
        return
    table = Table(title="Supported operators", title_justify="left")
    for name in ("operator", "kind", "declared in", "facts"):
        table.add_column(name, overflow="fold")
    for op in supported():
        table.add_row(op.name, op.kind, op.module, ", ".join(op.facts))
    Console().print(table)
