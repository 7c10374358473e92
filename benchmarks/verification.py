"""Cost and mean margin of every method on every workload, beside those of the leading library
(peer.json).

    python -m benchmarks.verification [--threads N] [--rounds N] [--only TEXT]

The cost is the time of ``net.margins`` without gradient as a multiple of a forward and backward
pass of the same batch. If auto_LiRPA is importable, it is timed beside on the same networks in the
same rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from benchmarks.timing import best_of, gigaflops, kernel_seconds, load, save
from benchmarks.workloads import PEER, WORKLOADS

TARGETS = {"ibp": 1.5, "crown-ibp": 2.0, "crown": 3.0, "alpha-crown": 10.0}


def measure(name: str, method: str, rounds: int) -> dict[str, Any]:
    workload = WORKLOADS[name]
    model = workload.network()
    x, y = workload.batch(method, 2 if name == "encoder" else 10)
    net = bl.capture(model, x)
    region = bl.Linf(x, workload.eps)

    def step() -> None:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()

    def ask() -> Tensor:
        with torch.no_grad():
            return net.margins(region, y, method=method)

    tasks: dict[str, Callable[[], Any]] = {"step": step, "ours": ask}
    other = other_library(model, x, y, workload.eps, method)
    if other is not None:
        tasks["other"] = other
    seconds = best_of(tasks, rounds)
    row = {
        "workload": name,
        "method": method,
        "batch": len(x),
        "step": seconds["step"],
        "seconds": seconds["ours"],
        "ratio": seconds["ours"] / seconds["step"],
        "mean_margin": float(ask().mean()),
        "gigaflops": gigaflops(ask),
        "kernels": kernel_seconds(ask),
    }
    if other is not None:
        row["other_ratio"] = seconds["other"] / seconds["step"]
    return row


def other_library(
    model: nn.Module, x: Tensor, y: Tensor, eps: float, method: str
) -> Callable[[], Any] | None:
    """The same question to auto_LiRPA, if it is there and can answer."""
    names = {
        "ibp": "IBP",
        "crown-ibp": "CROWN-IBP",
        "crown": "CROWN",
        "alpha-crown": "CROWN-Optimized",
        "forward+backward": "Forward+Backward",
    }
    if importlib.util.find_spec("auto_LiRPA") is None:
        return None
    import auto_LiRPA  # type: ignore[import-not-found]

    try:
        wrapped = auto_LiRPA.BoundedModule(model, torch.zeros_like(x))
        ball = auto_LiRPA.BoundedTensor(x, auto_LiRPA.PerturbationLpNorm(norm=math.inf, eps=eps))
        classes = model(x).shape[1]
        eye = torch.eye(classes)
        c = torch.stack(
            [
                torch.stack([eye[int(label)] - eye[k] for k in range(classes) if k != int(label)])
                for label in y
            ]
        )
        settings = {"C": c, "method": names[method], "bound_upper": False}
        ask = lambda: wrapped.compute_bounds(x=(ball,), **settings)
        ask()
    except Exception as error:  # whatever it raises, the benchmark goes on without it
        print(f"auto_LiRPA cannot do {method}: {type(error).__name__}: {error}")
        return None
    return ask


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: dict[str, Any] = (load("verification") or {"rows": {}})["rows"]
    for name, workload in WORKLOADS.items():
        for method in workload.batches:
            key = f"{name}/{method}"
            if options.only in key:
                rows[key] = measure(name, method, options.rounds)
                print(
                    f"{key}: {rows[key]['ratio']:.1f} steps, margin {rows[key]['mean_margin']:.5f}"
                )
                save("verification", {"threads": options.threads, "rows": rows})
    show(rows)


def gains(rows: dict[str, Any]) -> dict[str, float]:
    """The geometric mean over the workloads of the peer's cost / ours, by method."""
    found: dict[str, list[float]] = {}
    for key, row in rows.items():
        found.setdefault(row["method"], []).append(PEER[key]["ratio"] / row["ratio"])
    return {
        method: math.exp(sum(map(math.log, values)) / len(values))
        for method, values in found.items()
    }


def show(rows: dict[str, Any]) -> None:
    table = Table(
        "workload", "method", "batch", "cost (steps)", "peer", "peer / ours", "mean margin", "peer"
    )
    for key, row in rows.items():
        peer = PEER[key]
        cells = (
            f"{row['ratio']:.1f}",
            f"{peer['ratio']:.1f}",
            f"{peer['ratio'] / row['ratio']:.2f}",
            f"{row['mean_margin']:.5f}",
        )
        table.add_row(
            row["workload"], row["method"], str(row["batch"]), *cells, f"{peer['mean_margin']:.5f}"
        )
    console = Console(width=120)
    console.print(table)
    for method, gain in gains(rows).items():
        console.print(
            f"{method}: {gain:.2f}x in the geometric mean"
            + (f" (target {TARGETS[method]}x)" if method in TARGETS else "")
        )


if __name__ == "__main__":
    main()
