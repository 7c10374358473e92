"""Progress bars for long questions, outside of the core: methods only report how far they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress, TaskID

from boundlab.methods.alpha import Report


@contextmanager
def shown(wanted: bool) -> Iterator[Report | None]:
    """Something to report to that shows a bar for each kind of work; None if it is not wanted."""
    if not wanted:
        yield None
        return
    with Progress(transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield report
