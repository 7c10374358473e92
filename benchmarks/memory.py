"""Peak memory of crown in window form and in dense form, and a network whose dense form does not
fit a budget.

    python -m benchmarks.memory [--threads N]

Each measurement is a process of its own that asks one question twice: once the growth of its
resident size is looked at every millisecond (Linux), which has in it what the allocator keeps and
what kernels need for themselves, and scatters with both; and once the profiler notes every
allocation of a tensor, whose sum at its highest is the same in every run.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import boundlab as bl
from benchmarks.timing import save
from benchmarks.workloads import WORKLOADS
from boundlab.methods import backward, memory

CASES = [
    ("conv_wide", False),
    ("conv_wide", True),
    ("resnet", False),
    ("resnet", True),
    ("cnn7", False),
    ("cnn7 in less", False),
]
BUDGETS = {"cnn7": "2 GiB", "cnn7 in less": "20 MiB"}


def _give_back() -> None:
    """Return freed memory to the system, so that what is used next counts as growth (glibc)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Watch:
    """By how many bytes the process grows inside of the block."""

    def __enter__(self) -> Watch:
        _give_back()
        self.before = self.most = self._now()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def grown(self) -> int:
        return self.most - self.before

    def _look(self) -> None:
        while not self._done.wait(0.001):
            self.most = max(self.most, self._now())

    @staticmethod
    def _now() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def allocated(task: Callable[[], Any]) -> int:
    """The most bytes of tensors that are there at once while a task runs, beside those that were
    there before."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        task()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = sorted(
        (event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]"
    )
    return max(itertools.accumulate((size for _, size in changes), initial=0))


def cnn7() -> nn.Sequential:
    """Seven layers at 32x32, of the size that certified training uses, with an eighth of its
    channels in the last ones."""
    widths = [(3, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 128, 1)]
    layers: list[nn.Module] = []
    for into, out, stride in widths:
        layers += [nn.Conv2d(into, out, 3, stride=stride, padding=1), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(128 * 16 * 16, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def once(name: str, dense: bool, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    if name in BUDGETS:
        torch.manual_seed(0)
        model, eps = cnn7().eval(), 1 / 255
        x = torch.rand(1, 3, 32, 32)
    else:
        model = WORKLOADS[name].network()
        x, _ = WORKLOADS[name].batch("crown", 10)
        eps = WORKLOADS[name].eps
    if dense:
        backward.MAX_WINDOW_FRACTION = -1.0
        memory.SPEED = 1 << 40  # as many rows at once as memory allows
    net = bl.capture(model, x)
    ask = lambda: net.bounds(bl.Linf(x, eps), method="crown", memory=BUDGETS.get(name))
    with torch.no_grad():
        net.bounds(bl.Linf(x, eps), method="ibp")
        start = time.perf_counter()
        with Watch() as watch:
            bounds = ask()
        seconds = time.perf_counter() - start
        tensors = allocated(ask)
    return {
        "workload": name, "form": "dense" if dense else "windows", "tensors_mib": tensors / 2**20,
        "peak_mib": watch.grown / 2**20,
        "seconds": seconds, "width": float(bounds.width.mean()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--once", nargs=2)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(options.once[0], options.once[1] == "dense", options.threads)))
        return
    rows = []
    for name, dense in CASES:
        call = [
            sys.executable,
            "-m",
            "benchmarks.memory",
            "--threads",
            str(options.threads),
            "--once",
            name,
            "dense" if dense else "windows",
        ]
        rows.append(
            json.loads(
                subprocess.run(
                    call, check=True, capture_output=True, text=True
                ).stdout.splitlines()[-1]
            )
        )
        print(rows[-1])
        save("memory", rows)


if __name__ == "__main__":
    main()
