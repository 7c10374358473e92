"""How things are timed here: in one process, interleaved, best of several rounds, with a fixed number of threads."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def best_of(tasks: Mapping[str, Callable[[], Any]], rounds: int = 7, seconds: float = 20.0) -> dict[str, float]:
    """The least seconds that each task took, over rounds in which every task runs once; stops early after ``seconds``."""
    best = dict.fromkeys(tasks, float("inf"))
    for task in tasks.values():
        task()
    start = time.perf_counter()
    for done in range(rounds):
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - began)
        if done >= 2 and time.perf_counter() - start > seconds:
            break
    return best


def save(name: str, result: Any) -> None:
    """Write a result as JSON, atomically."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(partial, path)


def load(name: str) -> Any:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
