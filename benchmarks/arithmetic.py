"""What bounds that hold in floating point cost: time and width beside plain bounds in double
precision, and the verified share of images of networks that others trained.

    python -m benchmarks.arithmetic [--rounds N] [--only TEXT]           workloads
    python -m benchmarks.arithmetic --networks --data FOLDER_WITH_MNIST --cifar FOLDER [--limit N]

Networks are found through BOUNDLAB_SHARED. One thread; interleaved, the best of several rounds.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import boundlab as bl
from benchmarks.networks import ENTRIES, cifar_test
from benchmarks.shared import mnist_test
from benchmarks.timing import best_of, load, save
from benchmarks.workloads import WORKLOADS

METHODS = ("ibp", "crown-ibp", "crown")
MODES = (None, "real", "float32", "float64")
SHARES = (
    ("kw_mnist", "crown"),
    ("mnist_cnn_a_adv", "crown"),
    ("mnist_conv_small_nat", "crown"),
    ("cifar_base_kw", "crown-ibp"),
    ("cifar_cnn_a_adv", "crown"),
)
"""Networks, and a method that proves some of their images."""


@torch.no_grad()
def cost(name: str, method: str, rounds: int) -> dict[str, Any]:
    """Seconds of the margins of a workload, and how far they fall, by arithmetic."""
    workload = WORKLOADS[name]
    model = workload.network().eval()
    x, y = workload.batch(method, 2 if name == "encoder" else 10)
    double = workload.network().eval()
    double.load_state_dict(model.state_dict())
    nets = {dtype: bl.capture(made.to(dtype), x.to(dtype)) for dtype, made in (
        (torch.float32, model), (torch.float64, double.double()),
    )}  # fmt: skip

    def ask(mode: str | None) -> Tensor:
        dtype = torch.float32 if mode == "float32" else torch.float64
        region = bl.Linf(x.to(dtype), workload.eps)
        return nets[dtype].margins(region, y, method=method, arithmetic=mode)

    seconds = best_of({str(mode): partial(ask, mode) for mode in MODES}, rounds)
    plain = ask(None)
    lost = {str(mode): float((plain - ask(mode)).mean()) for mode in MODES[1:]}
    return {
        "workload": name,
        "method": method,
        "seconds": seconds,
        "margin": float(plain.mean()),
        "lost": lost,
    }


@torch.no_grad()
def share(name: str, method: str, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """How many images are verified, by arithmetic."""
    entry = ENTRIES[name]
    model = entry.load()
    net = bl.capture(model, images[:2])
    counts = dict.fromkeys(map(str, MODES[:3]), 0)
    for x, y in zip(images.split(20), labels.split(20), strict=True):
        right = model(x).argmax(1) == y
        region = bl.Linf(x[right], entry.eps, lower=0.0, upper=1.0)
        if not bool(right.any()):
            continue
        for mode in MODES[:3]:
            margins = net.margins(region, y[right], method=method, arithmetic=mode)
            counts[str(mode)] += int((margins > 0).all(1).sum())
    return {"network": name, "method": method, "images": len(labels), "verified": counts}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--limit", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = load("arithmetic") or {"cost": {}, "shares": {}}
    if options.networks:
        read = {
            "mnist": lambda: mnist_test(options.data),
            "cifar": lambda: cifar_test(options.cifar),
        }
        for name, method in SHARES:
            if options.only in name:
                images, labels = (part[: options.limit] for part in read[ENTRIES[name].data]())
                found["shares"][name] = share(name, method, images, labels)
                save("arithmetic", found)
    else:
        for name in WORKLOADS:
            for method in METHODS:
                if options.only in f"{name}/{method}":
                    found["cost"][f"{name}/{method}"] = cost(name, method, options.rounds)
                    save("arithmetic", found)
    console = Console()
    console.print(cost_table(found["cost"]))
    console.print(share_table(found["shares"]))


def cost_table(rows: dict[str, Any]) -> Table:
    table = Table(title="time as a multiple of plain bounds in double precision; margin lost")
    for column in ("workload", "method", *MODES[1:], "margin", *(f"lost, {m}" for m in MODES[1:])):
        table.add_column(str(column), justify="right")
    for row in rows.values():
        times = [f"{row['seconds'][m] / row['seconds']['None']:.2f}" for m in MODES[1:] if m]
        lost = [f"{row['lost'][m]:.2g}" for m in MODES[1:] if m]
        table.add_row(row["workload"], row["method"], *times, f"{row['margin']:.3g}", *lost)
    return table


def share_table(rows: dict[str, Any]) -> Table:
    table = Table(title="verified images")
    for column in ("network", "method", "images", "plain, single", "real", "float32"):
        table.add_column(column, justify="right")
    for row in rows.values():
        counts = [str(row["verified"][str(mode)]) for mode in MODES[:3]]
        table.add_row(row["network"], row["method"], str(row["images"]), *counts)
    return table


if __name__ == "__main__":
    main()
