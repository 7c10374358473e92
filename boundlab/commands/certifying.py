"""``boundlab demo`` and ``boundlab certify``: certify images, print a table, write a report."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console
from rich.table import Table

from boundlab.attacks import AttackSettings
from boundlab.commands.arguments import (
    Commands,
    add_count,
    add_numbers,
    add_ray,
    add_timeout,
    flat,
    words,
)
from boundlab.commands.bars import certify_with_bar
from boundlab.commands.certificates import Certification, Verdict
from boundlab.commands.counterexamples import COUNTEREXAMPLES
from boundlab.commands.cuts import line_cuts, telling_radius
from boundlab.commands.jobs import DEFAULT_METHODS, Job, check_methods, check_radii
from boundlab.commands.page import how_made, with_digest
from boundlab.commands.report import headline, page
from boundlab.commands.report_parts import About
from boundlab.commands.subjects import (
    EPS,
    RESULTS,
    TABLE,
    add_attack,
    add_resume,
    add_subject,
    check_folder,
    read_subject,
    said_of,
)
from boundlab.commands.tables import verdict_table, write_table
from boundlab.demo import load_digits, load_model
from boundlab.errors import ArgumentError
from boundlab.net import Net, capture
from boundlab.scaling.parts import parts_on
from boundlab.storage.files import write_atomically
from boundlab.verify.samples import COMPLETE, time_limit

REPORT = "index.html"
DEMO = "demo"
DEMO_RADII = (0.05, 0.1, 0.15)


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
            "Bound the margins of every image of DATA by every method at every radius, attack the "
            "images that none proves, verify what is left if complete is one of the methods, print "
            "how many are proved, falsified and open, and write a report."
        ),
        epilog=(
            "example: boundlab certify mypackage.models:small_cnn test.npz --weights best.pt --eps "
            "2/255 8/255 --mean 0.49 --std 0.25"
        ),
    )
    job.set_defaults(command=_certify)
    add_subject(job)
    add_numbers(job, "--eps", "EPS", "radii, fractions too (default: 2/255 8/255)")
    job.add_argument(
        "--no-attack",
        dest="attack",
        action="store_false",
        help="do not attack images that no method proves",
    )
    add_attack(job)
    add_resume(job)
    add_ray(job)
    _common(job)


def _common(parser: argparse.ArgumentParser) -> None:
    default = ", ".join(DEFAULT_METHODS)
    parser.add_argument(
        "--methods",
        nargs="+",
        action="extend",
        type=words,
        metavar="METHOD",
        help=f"default: {default}; {COMPLETE} verifies images that the others leave open",
    )
    add_timeout(parser)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("boundlab-report"),
        metavar="DIR",
        help=("folder for the report (default: boundlab-report)"),
    )


@dataclass(frozen=True)
class _Output:
    """Where results and the report go, and what the report says of where it comes from. ray: the
    cluster that the work is spread over, if any."""

    folder: Path
    resume: bool
    about: About
    ray: str | None = None


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
        timeout=options.timeout,
    )
    _clear(options.output / RESULTS)
    note = (
        "Handwritten digits (MNIST test images), and the small convolutional network that "
        "ships with boundlab, trained with interval bounds."
    )
    made = how_made(options.given, _files_of_demo())
    output = _Output(options.output, False, About("Certified digits", note, made))
    _run(job, capture(load_model(), images[:2]), output)


def _files_of_demo() -> dict[str, str]:
    """The weights and the digits that ship with the package."""
    found = {}
    for what, name in (("Weights", "digits.pt"), ("Data", "digits.npz")):
        with as_file(files("boundlab.demo") / name) as path:
            found[what] = with_digest(path, f"{name} of boundlab.demo")
    return found


def _clear(path: Path) -> None:
    """Take away the results of another demo, and of nothing else."""
    try:
        if json.loads(path.read_text())["task"]["name"] == DEMO:
            path.with_name(COUNTEREXAMPLES).unlink(missing_ok=True)
            path.unlink()
    except (OSError, ValueError, KeyError, TypeError):  # not a demo's
        pass
    if path.exists():
        raise ArgumentError(
            f"{path.parent} holds results that are not of a demo: give another --output"
        )


def _certify(options: argparse.Namespace) -> None:
    check_folder(options.output, options.resume, TABLE)
    radii = check_radii(flat(options.eps) or EPS)
    methods = _methods(options)
    about = read_subject(options)
    job = Job(
        about.images,
        about.labels,
        radii,
        methods,
        norm=about.norm,
        valid=about.valid,
        batch=about.batch,
        device=about.device,
        name=about.name,
        attack=AttackSettings(options.steps, options.restarts) if options.attack else None,
        timeout=options.timeout,
    )
    made = how_made(options.given, said_of(options))
    said = About("Certified robustness", about.name, made)
    _run(job, about.net, _Output(options.output, options.resume, said, options.ray))


def _methods(options: argparse.Namespace) -> tuple[str, ...]:
    """The methods, and an error for a time that none of them has."""
    methods: tuple[str, ...] = DEFAULT_METHODS
    if options.methods is not None:
        methods = check_methods([method for part in options.methods for method in part])
    time_limit(options.timeout, methods)
    return methods


def _run(job: Job, net: Net, output: _Output) -> None:
    """Certify with a progress bar, print the table, write the report."""
    console = Console()
    results = output.folder / RESULTS
    with parts_on(output.ray, job.device) as spread:
        found = certify_with_bar(net, job, results, output.resume, console, spread)
    console.print(_table(found))
    write_table(output.folder / TABLE, verdict_table(found))
    radius = telling_radius(found, found.radii[headline(found)])
    cuts = line_cuts(net, found, job.images, radius, job.device)
    report = output.folder / REPORT
    write_atomically(report, page(found, job.images, cuts, output.about))
    console.print(f"Report: {report}", soft_wrap=True, markup=False, highlight=False)


def _table(found: Certification) -> Table:
    count, correct = len(found.labels), int(found.correct.sum())
    title = f"{correct} of {count} images are classified correctly"
    table = Table(title=title, title_justify="left")
    table.add_column("method", no_wrap=True)
    for name in ("radius", "proved", "falsified", "open", "margin", "s/image"):
        table.add_column(name, justify="right")
    for row in found.rows:
        table.add_row(
            row.method,
            f"{row.radius:.3g}",
            *[f"{part / count:.1%}" for part in (row.verified, row.falsified, row.open)],
            f"{row.mean_margin:.3f}",
            f"{row.seconds:.4f}",
            end_section=row.radius == found.radii[-1],
        )
    if len(found.methods) != 1:
        for radius in found.radii:
            table.add_row("together", f"{radius:.3g}", *together(found, radius))
    return table


def together(found: Certification, radius: float) -> list[str]:
    """The shares of images that are proved by any method, falsified, and open."""
    verdicts = found.verdicts(radius)
    wanted = (Verdict.PROVED, Verdict.FALSIFIED, Verdict.OPEN)
    return [f"{verdicts.count(one) / len(verdicts):.1%}" for one in wanted]
