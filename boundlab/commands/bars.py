"""Progress of long commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from boundlab.commands.certificates import Certification
from boundlab.commands.certify import certify_job
from boundlab.commands.jobs import Job
from boundlab.net import Net
from boundlab.scaling.parts import Here, Spread


class Show(Protocol):
    """Says what is being done and how many images of all are done."""

    def __call__(self, text: str, done: int) -> None: ...


@contextmanager
def bar_of_images(console: Console, total: int) -> Iterator[Show]:
    """A bar that goes away when all is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("images"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        shown = bar.add_task("", total=total)

        def show(text: str, done: int) -> None:
            bar.update(shown, completed=done, description=text)

        yield show


def certify_with_bar(
    net: Net, job: Job, results: Path, resume: bool, console: Console, spread: Spread = Here
) -> Certification:
    """Do a job with one bar for all methods, radii and attacks. spread: where the work is done."""
    kinds = len(job.methods) + (job.attack is not None)
    finished: dict[tuple[str, float], int] = {}
    with bar_of_images(console, kinds * len(job.radii) * len(job.images)) as show:

        def progress(method: str, radius: float, done: int, _: int) -> None:
            finished[method, radius] = done
            show(f"{method} at {radius:.3g}", sum(finished.values()))

        return certify_job(
            net, job, results=results, resume=resume, progress=progress, spread=spread
        )
