"""The rounding errors of torch's elementwise functions in float64, at some numbers, against mpmath:
the part of ``benchmarks.ulps`` that ``--double`` measures, in units of 2^-53."""

from __future__ import annotations

import math
from typing import Any

import torch
from mpmath import libmp, mp, mpf
from torch import Tensor

from benchmarks.ulps_functions import FUNCTIONS, Function

U = mpf(2) ** -53
TINY = mpf(2) ** -1022
SMALL = mpf(2) ** -960
"""Of values that are smaller the absolute error counts, in units of 2^-1022, as far as it is more
than ``ROUNDED`` units of the first model."""
ROUNDED = 6
LARGEST = mpf(torch.finfo(torch.float64).max)
MODELS = ("y", "y and x", "y and 1")


def numbers() -> Tensor:
    """Of all exponents, of those that matter most, evenly from intervals, and where functions have
    roots, turns and thresholds."""
    random = torch.Generator().manual_seed(0)
    uniform = lambda count: torch.rand(count, generator=random, dtype=torch.float64)
    sign = lambda count: (uniform(count) < 0.5).double() * 2 - 1
    wide = sign(300) * (1 + uniform(300)) * 2 ** torch.linspace(-1074, 1022, 300).double().round()
    near = sign(600) * (1 + uniform(600)) * 2 ** (torch.arange(600) % 38 - 30).double()
    even = torch.cat([80 * uniform(300) - 40, 1600 * uniform(100) - 800, uniform(200)])
    steps = torch.arange(-12, 13, dtype=torch.float64)
    points = torch.cat(
        [steps / 4, steps * (math.pi / 4), torch.tensor([20.0, 1.46163214496836234])]
    )
    around = torch.tensor([-1000, -3, -1, 0, 1, 3, 1000])
    bits = points.view(torch.int64)[:, None] + around
    return torch.cat([wide, near, even, bits.flatten().view(torch.float64)])


def _exact(function: Function, x: float) -> Any:
    """The value, or None where there is none, or none that mpmath gives."""
    try:
        value = function.exact(mpf(x))
    except (ArithmeticError, ValueError, libmp.NoConvergence):
        return None
    if not isinstance(value, mpf) or mp.isnan(value) or abs(value) > LARGEST:
        return None
    return value


def _errors(x: Any, exact: Any, result: float) -> dict[str, float]:
    """In the units of each model, and for values that are very small that of 2^-1022."""
    error, size = abs(mpf(result) - exact), abs(exact)
    if size < SMALL:
        return {
            "underflow": float(max(error - ROUNDED * U * size, mpf(0)) / TINY),
            "y and x": float(error / max(size + abs(x), TINY / U) / U),
        }
    return {
        "y": float(error / size / U),
        "y and x": float(error / (size + abs(x)) / U),
        "y and 1": float(error / (size + 1) / U),
    }


def measure(name: str) -> dict[str, Any]:
    """The largest errors of a function, vectorised and with strides, and where they are."""
    function, x = FUNCTIONS[name], numbers()
    if function.positive:
        x = x[x > 0]
    wide = torch.empty(2 * x.numel(), dtype=x.dtype)
    wide[::2] = x
    paths = {"vectorised": function.op(x), "scalar": function.op(wide[::2])}
    worst: dict[str, Any] = {}
    strange: list[list[float]] = []
    counted = 0
    for k, at in enumerate(x.tolist()):
        exact = _exact(function, at)
        if exact is None:
            continue
        counted += 1
        for path, values in paths.items():
            result = values[k].item()
            if not math.isfinite(result):
                strange.append([at, result, float(exact)])
                continue
            for model, units in _errors(mpf(at), exact, result).items():
                if units > worst.get(model, {"units": -1.0})["units"]:
                    worst[model] = {"units": units, "path": path, "x": at, "result": result}
    return {"numbers": counted, "models": worst, "not finite": strange[:6]}


def line(name: str, row: dict[str, Any]) -> str:
    units = {model: found["units"] for model, found in row["models"].items()}
    cells = [f"{model} {units.get(model, 0.0):9.4g}" for model in (*MODELS, "underflow")]
    return f"{name:20s} float64, {row['numbers']} numbers  " + "  ".join(cells)
