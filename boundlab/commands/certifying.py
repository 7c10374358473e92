"""``boundlab demo`` and ``boundlab certify``: certify images, print a table, write a report."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from rich.table import Table

from boundlab.attacks import AttackSettings
from boundlab.commands.arguments import flat
from boundlab.commands.bars import certify_with_bar
from boundlab.commands.certificates import Certification, Verdict
from boundlab.commands.counterexamples import COUNTEREXAMPLES
from boundlab.commands.cuts import line_cuts, telling_radius
from boundlab.commands.jobs import Job, check_methods, check_radii
from boundlab.commands.page import how_made, with_digest
from boundlab.commands.report import headline, page
from boundlab.commands.report_parts import About
from boundlab.commands.speaking import Json, busy, out, progress, say, write_json
from boundlab.commands.subjects import RESULTS, TABLE, check_folder, read_subject, said_of
from boundlab.commands.tables import verdict_table, write_table
from boundlab.defaults import DEMO_RADII, EPS
from boundlab.defaults import METHODS as DEFAULT_METHODS
from boundlab.demo import load_digits, load_model
from boundlab.errors import ArgumentError
from boundlab.net import Net, capture
from boundlab.scaling.parts import parts_on
from boundlab.storage.files import write_atomically
from boundlab.verify.samples import time_limit

REPORT = "index.html"
DEMO = "demo"


@dataclass(frozen=True)
class _Output:
    """Where results and the report go, and what the report says of where it comes from. ray: the
    cluster that the work is spread over, if any."""

    folder: Path
    resume: bool
    about: About
    ray: str | None = None


def demo(options: argparse.Namespace) -> None:
    """Certify the digits that ship with the package."""
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
    _run(job, capture(load_model(), images[:2]), output, options)


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


def certify(options: argparse.Namespace) -> None:
    """Certify images."""
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
        arithmetic=options.arithmetic,
    )
    made = how_made(options.given, said_of(options))
    said = About("Certified robustness", about.name, made)
    output = _Output(options.output, options.resume, said, options.ray)
    _run(job, about.net, output, options)


def _methods(options: argparse.Namespace) -> tuple[str, ...]:
    """The methods, and an error for a time that none of them has."""
    methods: tuple[str, ...] = DEFAULT_METHODS
    if options.methods is not None:
        methods = check_methods([method for part in options.methods for method in part])
    time_limit(options.timeout, methods)
    return methods


def _run(job: Job, net: Net, output: _Output, options: argparse.Namespace) -> None:
    """Certify with a progress bar, print the table, write the report."""
    console, bar = out(options), progress(options)
    results = output.folder / RESULTS
    with parts_on(output.ray, job.device) as spread:
        found = certify_with_bar(net, job, results, output.resume, bar, spread)
    console.print(_table(found))
    write_table(output.folder / TABLE, verdict_table(found))
    radius = telling_radius(found, found.radii[headline(found)])
    report = output.folder / REPORT
    with busy(options, "drawing the report"):
        cuts = line_cuts(net, found, job.images, radius, job.device)
        write_atomically(report, page(found, job.images, cuts, output.about))
    say(console, f"Report: {report}")
    files = {"results": str(results), "report": str(report)}
    write_json(options, {**document(found), **files})


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
    return [f"{share:.1%}" for share in _shares(found, radius).values()]


def _shares(found: Certification, radius: float) -> dict[str, float]:
    verdicts = found.verdicts(radius)
    wanted = (Verdict.PROVED, Verdict.FALSIFIED, Verdict.OPEN)
    return {str(one): verdicts.count(one) / len(verdicts) for one in wanted}


def document(found: Certification) -> dict[str, Json]:
    """The table for scripts: shares of all images, and seconds an image."""
    count = len(found.labels)
    rows: list[Json] = [
        {
            "method": row.method,
            "radius": row.radius,
            "proved": row.verified / count,
            "falsified": row.falsified / count,
            "open": row.open / count,
            "mean_margin": row.mean_margin,
            "seconds": row.seconds,
        }
        for row in found.rows
    ]
    return {
        "images": count,
        "correct": int(found.correct.sum()) / count,
        "norm": found.task.norm,
        "methods": rows,
        "together": [{"radius": radius, **_shares(found, radius)} for radius in found.radii],
    }
