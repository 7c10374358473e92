"""How the cost of each method grows with width, depth, batch, number of specifications and size of
the input.

    python -m benchmarks.growth [--threads N]
    python -m benchmarks.growth --plot           only the plot, from results that are there

Writes results/growth.json and docs/growth.svg.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import boundlab as bl
from benchmarks.timing import best_of, load, save
from benchmarks.workloads import mlp
from boundlab.plot.style import figure, label_ends, ticks_at
from boundlab.plot.style import save as save_figure

TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)
"""Milliseconds that are written at the axis."""
METHODS = ("ibp", "crown-ibp", "crown")
PLOT = Path(__file__).parent.parent / "docs" / "growth.svg"


def images(size: int) -> nn.Module:
    side = size // 4
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * side * side, 10),
    )


def settings() -> dict[str, list[tuple[int, Callable[[], nn.Module], tuple[int, ...], int, int]]]:
    """axis -> (value, network, input shape, batch, specifications)."""
    return {
        "width": [(n, lambda n=n: mlp(4, n, 100), (100,), 8, 9) for n in (32, 64, 128, 256, 512)],
        "depth": [(n, lambda n=n: mlp(n, 64, 100), (100,), 8, 9) for n in (1, 2, 4, 8, 12)],
        "batch": [(n, lambda: mlp(4, 64, 100), (100,), n, 9) for n in (1, 4, 16, 64, 128)],
        "specifications": [
            (n, lambda: mlp(4, 256, 100), (100,), 8, n) for n in (1, 10, 100, 400, 1000)
        ],
        "input side": [(n, lambda n=n: images(n), (3, n, n), 2, 9) for n in (8, 16, 32, 48)],
    }


def measure() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for axis, points in settings().items():
        for value, make, shape, batch, specs in points:
            torch.manual_seed(0)
            model = make().eval()
            x = torch.rand(batch, *shape)
            net, region = bl.capture(model, x), bl.Linf(x, 0.01)
            spec = torch.randn(specs, 10)

            def ask(
                method: str,
                net: bl.Net = net,
                region: bl.Region = region,
                spec: torch.Tensor = spec,
            ) -> Any:
                with torch.no_grad():
                    return net.bounds(region, spec=spec, method=method, sides="lower")

            seconds = best_of(
                {method: lambda m=method: ask(m) for method in METHODS}, rounds=5, seconds=8
            )
            for method in METHODS:
                found.setdefault(axis, {}).setdefault(method, []).append((value, seconds[method]))
            print(axis, value, {method: f"{1e3 * time:.1f} ms" for method, time in seconds.items()})
    return found


def plot(found: dict[str, Any]) -> None:
    made, axes = figure(len(found), 1.7 * len(found) + 1, 2.6)
    for ax, (axis, curves) in zip(axes, found.items(), strict=True):
        for method, points in curves.items():
            sizes, seconds = zip(*points, strict=True)
            milliseconds = [1e3 * each for each in seconds]
            ax.plot(sizes, milliseconds, "-", marker="o", markersize=3, label=method)
        ax.set(xlabel=axis, xscale="log", yscale="log", ylim=limits(found))
        ticks_at(ax.xaxis, sizes[::2])
        ticks_at(ax.yaxis, TICKS)
    for ax in axes[1:]:
        ax.sharey(axes[0])
        ax.tick_params(labelleft=False)
    axes[0].set_ylabel("milliseconds")
    label_ends(axes[-1])
    save_figure(made, PLOT)


def limits(found: dict[str, Any]) -> tuple[float, float]:
    """Milliseconds that all measurements lie between, the same for all Axes."""
    times = [1e3 * s for curves in found.values() for points in curves.values() for _, s in points]
    return min(times) / 1.3, max(times) * 1.3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot", action="store_true", help="only draw what was measured before")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = load("growth") if options.plot else measure()
    if not options.plot:
        save("growth", found)
    plot(found)


if __name__ == "__main__":
    main()
