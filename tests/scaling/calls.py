"""What tests let other processes do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from boundlab.errors import ArgumentError
from boundlab.scaling.ray_pool import NodeTrouble


def square(number: int, seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return number * number


def refuse(number: int) -> int:
    raise ArgumentError(f"{number} is refused")


def die(number: int, folder: str, times: int) -> int:
    """Kills its process so many times before it returns."""
    for attempt in range(times):
        mark = Path(folder) / f"{number}-{attempt}"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return number


def trouble(number: int, folder: str) -> int:
    """The machine cannot, the first time."""
    mark = Path(folder) / f"trouble-{number}"
    if not mark.exists():
        mark.touch()
        raise NodeTrouble("the disk is full")
    return number


def sleep_on(number: int, folder: str, seconds: float) -> tuple[int, str]:
    """Notes that it has begun, on which node, and in which process."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    with (Path(folder) / "begun").open("a") as file:
        file.write(f"{number} {node} {os.getpid()}\n")
    time.sleep(seconds)
    return number, node
