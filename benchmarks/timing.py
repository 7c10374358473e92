"""How things are timed here: in one process, interleaved, best of several rounds, with a fixed
number of threads."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from boundlab.compat.private import TorchDispatchMode

aten = torch.ops.aten
KERNELS = frozenset(
    (
        aten.mm,
        aten.bmm,
        aten.addmm,
        aten.addmm_,
        aten.mv,
        aten.convolution,
        aten.convolution_backward,
    )
)
RESULTS = Path(__file__).parent / "results"


def best_of(
    tasks: Mapping[str, Callable[[], Any]],
    rounds: int = 7,
    seconds: float = 20.0,
    least: float = 2.0,
) -> dict[str, float]:
    """The least seconds that each task took, over rounds in which every task runs once: as many as
    asked for, more if they take less than ``least`` seconds in all, and fewer, but three, if they
    take more than ``seconds``."""
    best = dict.fromkeys(tasks, float("inf"))
    for task in tasks.values():
        task()
    start, done = time.perf_counter(), 0
    while done < rounds or time.perf_counter() - start < least:
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - began)
        done += 1
        if done >= 3 and time.perf_counter() - start > seconds:
            break
    return best


class Kernels(TorchDispatchMode):
    """Adds up the seconds that matrix products and convolutions take: what no other way to do the
    same work can leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in KERNELS:
            self.seconds += time.perf_counter() - began
        return result


def kernel_seconds(task: Callable[[], Any], rounds: int = 5) -> float:
    """The least seconds of a task's matrix products and convolutions."""
    found = []
    for _ in range(rounds):
        with Kernels() as kernels:
            task()
        found.append(kernels.seconds)
    return min(found)


def gigaflops(task: Callable[[], Any]) -> float:
    """How many 10^9 floating-point operations the matrix products and convolutions of a task
    take."""
    with FlopCounterMode(display=False, custom_mapping={aten.addmm_: _product_in_place}) as counter:
        task()
    return counter.get_total_flops() / 1e9


def _product_in_place(total: Any, a: Any, b: Any, **_: Any) -> int:
    """The operations of ``total.addmm_(a, b)``, from the shapes."""
    return 2 * math.prod(a) * int(b[1])


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
