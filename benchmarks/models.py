"""Public model classes with tiny random configurations: are they captured, how long does that
take, how long does crown, and how far are its bounds from what an attack reaches?

python -m benchmarks.models [NAME ...] [--eps 0.001] [--threads 1]

Needs ``transformers``, which boundlab does not. "reached" is the mean width of what gradient steps
find for single elements; random members of a region with hundreds of elements reach a tenth of
that, and would make any bound look loose.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import boundlab as bl
from benchmarks.public_models import MODELS, PublicModel
from benchmarks.timing import save

STEPS = 6
ELEMENTS = 12


def reached(model: nn.Module, region: bl.Linf, elements: Tensor) -> Tensor:
    """How far apart the ends are that steps along the gradient find: (elements)."""
    ends = []
    for element in elements.tolist():
        top, bottom = (_climb(model, region, element, sign) for sign in (1.0, -1.0))
        ends.append(top + bottom)
    return torch.tensor(ends)


def _climb(model: nn.Module, region: bl.Linf, element: int, sign: float) -> float:
    """The largest value of sign times one output that steps along the gradient find."""
    box, x, best = region.hull(), region.centre, -float("inf")
    for _ in range(STEPS):
        x = x.detach().requires_grad_()
        height = sign * model(x)[0, element]
        best = max(best, float(height.detach()))
        (slope,) = torch.autograd.grad(height, x)
        moved = x.detach() + region.eps * slope.sign()
        x = torch.minimum(torch.maximum(moved, box.lower), box.upper)
    return best


def measure(public: PublicModel, eps: float) -> dict[str, Any]:
    """One row of the table."""
    model, x = public.build(), public.example()
    region, found = bl.Linf(x, eps), {"eps": eps}
    try:
        start = time.perf_counter()
        net = bl.capture(model, x)
        found |= {"capture_s": time.perf_counter() - start, "nodes": len(net.graph.nodes)}
        start = time.perf_counter()
        with torch.no_grad():
            bounds = net.bounds(region)
        found["crown_s"] = time.perf_counter() - start
    except bl.BoundlabError as error:
        return {**found, "refused": f"{type(error).__name__}: {error}"}
    width = (bounds.upper - bounds.lower)[0]
    elements = torch.linspace(0, len(width) - 1, ELEMENTS).long()
    truth = reached(model, region, elements)
    found["width"] = float(width[elements].mean())
    found["over_reached"] = float(width[elements].mean() / truth.mean())
    return found


def table(rows: dict[str, dict[str, Any]]) -> Table:
    drawn = Table("model", "nodes", "capture s", "crown s", "crown width / reached")
    for name, row in rows.items():
        if "refused" in row:
            drawn.add_row(name, "", "", "", row["refused"].split(":")[0])
            continue
        times = (f"{row['capture_s']:.1f}", f"{row['crown_s']:.2f}")
        drawn.add_row(name, str(row["nodes"]), *times, f"{row['over_reached']:.2f}")
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--eps", type=float, default=0.001)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    rows = {name: measure(MODELS[name], options.eps) for name in options.names or MODELS}
    if not options.names:
        save("models", rows)
    Console(width=110).print(table(rows))


if __name__ == "__main__":
    main()
