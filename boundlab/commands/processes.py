"""Work in fresh processes: one that crashes, takes all memory or hangs costs its own work only."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from boundlab.commands.competition import ERROR, TIMEOUT, Instance
from boundlab.commands.limits import PARENT
from boundlab.commands.outcomes import Outcome

GRACE = 5.0
"""Seconds after its time at which a process is killed."""
PAUSE = 0.02
"""Seconds between two looks at the processes."""
ROOM = 1 << 16
"""Bytes that the files of a process may need."""
SHOWN = 300
"""Characters of what a process printed that are kept."""


@dataclass(frozen=True)
class Task:
    """A command about an instance that leaves an outcome in a file. folder: for its files, its
    own."""

    instance: Instance
    command: tuple[str, ...]
    folder: Path

    @property
    def outcome(self) -> Path:
        return self.folder / "outcome.json"

    @property
    def result(self) -> Path:
        return self.folder / "result.txt"

    @property
    def printed(self) -> Path:
        """What the process printed as errors."""
        return self.folder / "printed.txt"


class Worker:
    """The process of a task. In a session of its own, so that Ctrl-C reaches it through us only."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.begun = time.monotonic()
        task.folder.mkdir(parents=True, exist_ok=True)
        with task.printed.open("wb") as printed:
            self.process = subprocess.Popen(
                task.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=printed,
                start_new_session=True,
                env={**os.environ, PARENT: str(os.getpid())},
            )

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def outcome(self, grace: float) -> Outcome | None:
        """What came of the task, None while it is at work; killed if its time is long over."""
        seconds = time.monotonic() - self.begun
        if self.process.poll() is None:
            if seconds <= self.task.instance.timeout + grace:
                return None
            self.stop()
            text = f"killed {grace:g} s after its time"
            return Outcome(TIMEOUT, seconds, error=text)
        try:
            left = Outcome.from_json(self.task.outcome.read_text())
        except (OSError, ValueError, TypeError):
            return Outcome(ERROR, seconds, error=self._how_it_ended())
        return replace(left, seconds=seconds)

    def _how_it_ended(self) -> str:
        code = self.process.returncode
        if code < 0:
            return f"the process was ended by signal {-code}"
        lines = self.task.printed.read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if not last and shutil.disk_usage(self.task.folder).free < ROOM:
            return f"no space is left for the files of the process (code {code})"
        return last[:SHOWN] or f"the process ended with code {code} and no answer"


def run_tasks(
    tasks: Iterable[Task], jobs: int, grace: float = GRACE
) -> Generator[tuple[Task, Outcome], None, None]:
    """Tasks with their outcomes, in the order in which they end; so many at once."""
    waiting = deque(tasks)
    working: list[Worker] = []
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                working.append(Worker(waiting.popleft()))
            for worker in list(working):
                found = worker.outcome(grace)
                if found is not None:
                    working.remove(worker)
                    yield worker.task, found
            time.sleep(PAUSE)
    finally:
        for worker in working:
            worker.stop()
