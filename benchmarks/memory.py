"""Peak memory of crown in window form and in dense form, and a network whose dense form does not fit a budget.

    python -m benchmarks.memory [--threads N]

Each measurement is a process of its own: the growth of its largest resident size while it asks one question.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import torch
from torch import nn

import boundlab as bl
from benchmarks.timing import save
from benchmarks.workloads import WORKLOADS
from boundlab.methods import backward, memory

CASES = [("conv_wide", False), ("conv_wide", True), ("resnet", False), ("resnet", True), ("cnn7", False), ("cnn7 in less", False)]
BUDGETS = {"cnn7": "2 GiB", "cnn7 in less": "100 MiB"}


def cnn7() -> nn.Sequential:
    """Seven layers at 32x32, of the size that certified training uses, with an eighth of its channels in the last ones."""
    widths = [(3, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 128, 1)]
    layers: list[nn.Module] = []
    for into, out, stride in widths:
        layers += [nn.Conv2d(into, out, 3, stride=stride, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16 * 16, 512), nn.ReLU(), nn.Linear(512, 10))


def once(name: str, dense: bool, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    if name in BUDGETS:
        torch.manual_seed(0)
        model, x, eps = cnn7().eval(), torch.rand(1, 3, 32, 32), 1 / 255
    else:
        model = WORKLOADS[name].network()
        x, _ = WORKLOADS[name].batch("crown", 10)
        eps = WORKLOADS[name].eps
    if dense:
        backward.WINDOW_SHARE = -1.0
        memory.SPEED = 1 << 40  # as many rows at once as memory allows
    net = bl.capture(model, x)
    with torch.no_grad():
        net.bounds(bl.Linf(x, eps), method="ibp")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        bounds = net.bounds(bl.Linf(x, eps), method="crown", memory=BUDGETS.get(name))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "workload": name, "form": "dense" if dense else "windows", "peak_mib": grown / 1024, "seconds": time.perf_counter() - start,
        "width": float(bounds.width.mean()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--once", nargs=2)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(options.once[0], options.once[1] == "dense", options.threads)))
        return
    rows = []
    for name, dense in CASES:
        call = [sys.executable, "-m", "benchmarks.memory", "--threads", str(options.threads), "--once", name, "dense" if dense else "windows"]
        rows.append(json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))
        print(rows[-1])
        save("memory", rows)


if __name__ == "__main__":
    main()
