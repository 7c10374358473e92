"""Whether torch.compile pays: for a whole question, and for the step through a ReLU alone.

    python -m benchmarks.compilation [--threads N]

Needs a C++ compiler. The step is the one pass over the coefficients that is not a matrix product or
convolution; compiled it is one loop instead of three. Break-even: after how many calls the time to
compile is won back, if ever.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import boundlab as bl
from benchmarks.timing import best_of, save
from benchmarks.workloads import WORKLOADS
from boundlab.kernels.reductions import dots

QUESTIONS = [("mlp_6x200", "ibp"), ("mlp_6x200", "crown-ibp"), ("conv_small", "crown-ibp")]
STEPS = [(160, 32, 200), (9, 64, 3136), (9, 64, 200)]


def eager(rows: Tensor, low: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """As boundlab.relaxations.lines.Lines does it."""
    negative = rows.clamp(max=0)
    return (rows * low).addcmul_(negative, up - low), dots(negative, bias)


def fused(rows: Tensor, low: Tensor, up: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The same, in the form that compiles into one loop."""
    negative = rows.clamp(max=0)
    return rows * low + negative * (up - low), (negative * bias).sum(2)


def compare(what: str, plain: Callable[[], Any], compiled: Callable[[], Any]) -> dict[str, Any]:
    began = time.perf_counter()
    compiled()
    compiling = time.perf_counter() - began
    best = best_of({"eager": plain, "compiled": compiled}, rounds=20)
    saved = best["eager"] - best["compiled"]
    calls = compiling / saved if saved > 0 else None
    return {
        "what": what,
        "compiling": compiling,
        "eager": best["eager"],
        "compiled": best["compiled"],
        "break_even": calls,
    }


def question(name: str, method: str) -> dict[str, Any]:
    workload = WORKLOADS[name]
    x, y = workload.batch(method, 10)
    net = bl.capture(workload.network(), x[:2])
    ask = lambda x, y: net.margins(bl.Linf(x, workload.eps), y, method=method)
    compiled = torch.compile(ask)
    return compare(f"{name}/{method}", lambda: ask(x, y), lambda: compiled(x, y))


def step(shape: tuple[int, int, int]) -> dict[str, Any]:
    torch.compiler.reset()
    rows, slopes = torch.randn(shape), [torch.rand(shape[1:]) for _ in range(3)]
    compiled = torch.compile(fused, dynamic=True)
    return compare(
        f"ReLU step, {shape[0]} rows x {shape[1]} samples x {shape[2]}",
        lambda: eager(rows, *slopes),
        lambda: compiled(rows, *slopes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch._logging.set_logs(dynamo=logging.ERROR)
    found = []
    with torch.no_grad():
        for run in [
            *(lambda s=s: step(s) for s in STEPS),
            *(lambda q=q: question(*q) for q in QUESTIONS),
        ]:
            found.append(run())
            print(found[-1])
            save("compilation", {"threads": options.threads, "rows": found})


if __name__ == "__main__":
    main()
