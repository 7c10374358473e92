"""``boundlab radius``: for each image the largest radius that is proved, and the smallest that is
broken."""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from dataclasses import asdict, dataclass

import torch
from rich.table import Table
from torch import Tensor

from boundlab.commands import tables
from boundlab.commands.bars import bar_of_images
from boundlab.commands.certify import prepare
from boundlab.commands.charts import bins, number
from boundlab.commands.counterexamples import Counterexamples
from boundlab.commands.jobs import Job, check_methods
from boundlab.commands.page import how_made
from boundlab.commands.radius_ledger import RadiiSoFar, RadiusLedger, RadiusSearch
from boundlab.commands.radius_report import Searched, highest, median, radius_page
from boundlab.commands.report_parts import About
from boundlab.commands.speaking import Json, busy, out, progress, say, write_json
from boundlab.commands.subjects import (
    RESULTS,
    check_folder,
    read_subject,
    said_of,
)
from boundlab.radius import certified_radius
from boundlab.scaling.parts import Subject as Parted
from boundlab.scaling.parts import parts_on
from boundlab.storage.files import write_atomically

TABLE, REPORT = "radii", "index.html"
LINES, WIDTH = 12, 40
"""Of the histogram in a terminal."""


def radius(options: argparse.Namespace) -> None:
    """Search for the radii of images."""
    check_folder(options.output, options.resume, TABLE)
    (method,) = check_methods([options.method])
    search = RadiusSearch(method, options.most, options.tolerance, options.steps, options.restarts)
    about = read_subject(options)
    made = how_made(options.given, said_of(options))
    console, bar = out(options), progress(options)
    job = Job(
        about.images,
        about.labels,
        [search.most],
        [method],
        norm=about.norm,
        valid=about.valid,
        batch=about.batch,
        device=about.device,
        name=about.name,
    ).checked()
    task, predictions, images = prepare(about.net, job)
    ledger = RadiusLedger(options.output / RESULTS, task, search, options.resume)
    with bar_of_images(bar, len(images)) as show, parts_on(options.ray, job.device) as spread:
        parts = spread(Parted(about.net, images, job.labels))
        first, said = len(ledger.found), f"{method}, norm {about.norm}"
        todo = [slice(k, k + job.batch) for k in range(first, len(images), job.batch)]
        work = SearchRadii(search, job.norm, job.valid, job.batch, job.device)
        show(said, first)
        try:
            with closing(parts.map(work, todo)) as searched:
                for found in searched:
                    ledger.add(found)
                    show(said, len(ledger.found))
        finally:
            ledger.save()
    found = ledger.found
    tables.write_table(options.output / TABLE, _table(found, job.labels, predictions, job.norm))
    report = options.output / REPORT
    known = Searched(task, images, job.labels, predictions, found, search)
    with busy(options, "drawing the report"):
        drawn = radius_page(known, About("Certified radii", about.name, made))
        write_atomically(report, drawn)
    console.print(_summary(found, predictions == job.labels))
    console.print(_histogram(found))
    say(console, f"Report: {report}")
    document = _document(found, search, predictions == job.labels)
    files = {"results": str(options.output / RESULTS), "report": str(report)}
    write_json(options, {"norm": job.norm, **document, **files})


@dataclass(frozen=True)
class SearchRadii:
    """Searches for the radii of consecutive images; batch: of them at a time."""

    search: RadiusSearch
    norm: str
    valid: tuple[float, float] | None
    batch: int
    device: torch.device | str

    def __call__(self, about: Parted, part: slice) -> RadiiSoFar:
        start = time.perf_counter()
        x, y = about.images[part].to(self.device), about.labels[part].to(self.device)
        low, high = self.valid or (None, None)
        found = certified_radius(
            about.net,
            x,
            y,
            self.norm,
            lower=low,
            upper=high,
            batch=self.batch,
            **asdict(self.search),
        )
        broken = found.broken.double().cpu()
        hit = ((broken > 0) & broken.isfinite()).nonzero().flatten()
        examples = Counterexamples.none(0)
        if len(hit):
            points = found.examples[hit.to(x.device)]
            with torch.no_grad():
                outputs = about.net(points).cpu()
            numbers = part.start + hit
            examples = Counterexamples(numbers, y.cpu()[hit], broken[hit], points.cpu(), outputs)
        seconds = time.perf_counter() - start
        return RadiiSoFar(found.proved.double().cpu(), broken, examples, seconds)


# -- what is shown ---------------------------------------------------------------------------------


def _table(found: RadiiSoFar, labels: Tensor, predictions: Tensor, norm: str) -> tables.Table:
    """One row an image; broken is empty where no violation was found."""
    broken = [value if value < torch.inf else None for value in found.broken.tolist()]
    return {
        "image": list(range(len(found))),
        "label": labels.tolist(),
        "prediction": predictions.tolist(),
        "norm": [norm] * len(found),
        "proved": found.proved.tolist(),
        "broken": broken,
    }


def _document(found: RadiiSoFar, search: RadiusSearch, correct: Tensor) -> dict[str, Json]:
    """The radii for scripts, one an image; broken is null where no violation was found."""
    return {
        "method": search.method,
        "images": len(found),
        "correct": correct.tolist(),
        "proved": found.proved.tolist(),
        "broken": found.broken.tolist(),
    }


def _summary(found: RadiiSoFar, correct: Tensor) -> Table:
    table = Table(
        title=f"{int(correct.sum())} of {len(found)} images are classified correctly",
        title_justify="left",
    )
    for name in ("", "images", "smallest", "median", "largest"):
        table.add_column(name, justify="right")
    broken = found.broken[correct]
    kinds = {"proved": found.proved[correct], "broken": broken[broken.isfinite()]}
    for name, values in kinds.items():
        ends = [number(float(end)) for end in (values.min(), values.max())] if len(values) else []
        low, high = ends or ("", "")
        table.add_row(name, str(len(values)), low, median(values), high)
    return table


def _histogram(found: RadiiSoFar) -> Table:
    """How many images are proved up to where."""
    high = highest(found)
    counts = bins(found.proved.tolist(), high, LINES)
    table = Table(title="proved radii", title_justify="left", box=None, show_header=False)
    for i, count in enumerate(counts):
        bar = "█" * round(WIDTH * count / (max(counts) or 1))
        table.add_row(f"{number(i * high / LINES)} ...", bar, str(count))
    return table
