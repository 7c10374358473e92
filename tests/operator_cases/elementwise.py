"""Operators on each element alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.operator_cases.case import add, on


def fill() -> None:
    anywhere: dict[str, Any] = {
        "relu": torch.relu,
        "relu6": F.relu6,
        "prelu": (F.prelu, torch.tensor([0.3])),
        "prelu, negative": (F.prelu, torch.tensor([-0.3])),
        "prelu, per channel": (F.prelu, torch.tensor([0.3, -0.5, 1.0, 1.7, 0.0, 2.0])),
        "celu": F.celu,
        "selu": F.selu,
        "gelu": F.gelu,
        "gelu, tanh": on(F.gelu, approximate="tanh"),
        "silu": F.silu,
        "mish": F.mish,
        "softplus": F.softplus,
        "softsign": F.softsign,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "logsigmoid": F.logsigmoid,
        "hardtanh": F.hardtanh,
        "hardtanh, asymmetric": on(F.hardtanh, min_val=-0.5, max_val=2.0),
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "tanhshrink": F.tanhshrink,
        "softshrink": F.softshrink,
        "softshrink, 1.2": on(F.softshrink, lambd=1.2),
        "hardshrink": F.hardshrink,
        "hardshrink, 1.2": on(F.hardshrink, lambd=1.2),
        "threshold, above": on(F.threshold, threshold=0.5, value=2.0),
        "threshold, below": on(F.threshold, threshold=0.5, value=-2.0),
        "threshold, negative": on(F.threshold, threshold=-1.0, value=0.0),
        "clamp": on(torch.clamp, min=-0.5, max=0.8),
        "clamp, min": on(torch.clamp, min=0.3),
        "clamp, max": on(torch.clamp, max=-0.3),
        "clamp, crossed": on(torch.clamp, min=1.0, max=-1.0),
        "clamp_min, clamp_max": lambda x: x.clamp_min(-1.0).clamp_max(0.5),
        "clamp, tensors": (lambda x, w: torch.clamp(x, w, w + 1), (6,)),
        "clamp, min tensor": (lambda x, w: torch.clamp(x, min=w) + x.clamp_max(w), (6,)),
        "exp": torch.exp,
        "exp2": torch.exp2,
        "expm1": torch.expm1,
        "square": torch.square,
        "2 ** x": lambda x: 2**x,
        "0.3 ** x": lambda x: 0.3**x,
        "abs": torch.abs,
        "sign": torch.sign,
        "sgn": torch.sgn,
        "floor": torch.floor,
        "ceil": torch.ceil,
        "round": torch.round,
        "trunc": torch.trunc,
        "sin": torch.sin,
        "cos": torch.cos,
        "sin, fast": lambda x: torch.sin(7 * x),
        "cos, fast": lambda x: torch.cos(7 * x + 1),
        "atan": torch.atan,
        "sinh": torch.sinh,
        "cosh": torch.cosh,
        "asinh": torch.asinh,
        "erf": torch.erf,
        "remainder": lambda x: torch.remainder(x, 0.7),
        "div, floor": lambda x: torch.div(x, 0.7, rounding_mode="floor"),
        "div, trunc": lambda x: torch.div(x, 0.7, rounding_mode="trunc") + torch.div(x, 2, rounding_mode=None),
        "comparison, multiplied as a number": lambda x: (x > 0.2).to(x.dtype) * 2 - (x <= -0.3).to(x.dtype),
        "comparison, multiplied": lambda x: (x > 0.2) * 2.0,
        "comparison, times x": lambda x: (x > 0.2) * x,
        "comparison, x times": lambda x: x * (x >= 0.2) - 0.5,
        "comparison, added": lambda x: x + (x < 0.2),
        "comparison, subtracted": lambda x: 1.0 - (x < 0.2).to(x.dtype),
        "comparison, where": lambda x: torch.where(x > 0.2, x * 2, -x),
        "comparison, where constants": lambda x: torch.where(x >= 0.2, 1.5, -0.5),
        "comparison, where one constant": lambda x: torch.where(x < -0.2, x, 1.0),
        "comparison, equal": lambda x: torch.where(x.round() == 1, x, 0.0) + torch.where(x.round() != 0, x, 1.0),
        "logic": lambda x: torch.where(((x > -1) & (x < 1)) | ~(x < 2), x, -x),
        "logic, functions": lambda x: torch.where(torch.logical_xor(x > 0, torch.logical_not(x < 1)), x, 0.0),
        "logic, combined": lambda x: torch.where(torch.logical_or(torch.logical_and(x > 0, x < 1), (x > -1) ^ (x > 2)), x, 0.0),
        "masked_fill, perturbed": lambda x: x.masked_fill(x < 0.3, 0.3),
        "to integers": lambda x: x.to(torch.int64).to(x.dtype),
        "to truth": lambda x: torch.where(x.round().bool(), x, 5.0),
        "to truth, not": lambda x: torch.where(torch.logical_not(x.round()), x, 5.0),
        "to truth, and": lambda x: torch.where(torch.logical_and(x.round(), x < 1), x, 5.0),
        "x * x": lambda x: x * x,
        "x * x * x": lambda x: x * x * x,
        "x * tanh(x)": lambda x: x * torch.tanh(x),
        "maximum of lines": lambda x: torch.maximum(x, -0.5 * x),
        "modules": nn.Sequential(nn.Hardtanh(), nn.ELU(1.5), nn.Softplus(), nn.LeakyReLU(0.2), nn.Identity()),
        "logaddexp with a constant": (lambda x, w: torch.logaddexp(x, w), (6,)),
        "hypot with a constant": (lambda x, w: torch.hypot(x, w), (6,)),
    }  # fmt: skip
    anywhere |= {
        f"leaky_relu, {s}": on(F.leaky_relu, negative_slope=s)
        for s in (0.01, 0.5, 1.0, 1.5, 0.0, -0.5, -2.0)
    }
    anywhere |= {f"elu, {a}": on(F.elu, alpha=a) for a in (0.5, 1.0, 2.0, 0.0, -1.0)}
    anywhere |= {f"celu, {a}": on(F.celu, alpha=a) for a in (0.5, 2.0, -1.0)}
    anywhere |= {
        f"softplus, beta {b}, threshold {t}": on(F.softplus, beta=b, threshold=t)
        for b, t in ((0.5, 20), (3.0, 20), (1.0, 1.0), (2.0, 0.5), (-1.0, 20))
    }
    anywhere |= {f"pow, {p}": on(torch.pow, exponent=p) for p in (0, 1, 2, 3, 4, 5, 2.0, 7)}
    add((6,), anywhere, elementwise=True)
    add((6,), {
        "log": torch.log, "log2": torch.log2, "log10": torch.log10, "sqrt": torch.sqrt,
        "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal,
        "1 / x": lambda x: 1 / x, "xlogy": lambda x: x * torch.log(x),
        "pow, tensor exponent": (torch.pow, torch.tensor([0.5, 2.0, -1.0, 3.0, 0.0, 1.0])),
        "pow, both": lambda x: x**x,
    } | {f"pow, {p}, positive": on(torch.pow, exponent=p) for p in (-1, -2, -3, 0.5, 1.5, -0.5, -1.5, 2.5, 1 / 3)},
    0.05, elementwise=True)  # fmt: skip
    add((6,), {
        "reciprocal, negative": torch.reciprocal, "2 / x, negative": lambda x: 2 / x,
    } | {f"pow, {p}, negative": on(torch.pow, exponent=p) for p in (-1, -2, -3)}, high=-0.05,
    elementwise=True)  # fmt: skip
    add((6,), {
        "sqrt at 0": torch.sqrt, "pow, 0.5 at 0": on(torch.pow, exponent=0.5),
        "pow, 1.5 at 0": on(torch.pow, exponent=1.5),
    }, 0.0, elementwise=True)  # fmt: skip
    add((6,), {"log1p": torch.log1p}, -0.95, elementwise=True)
    add((6,), {"acosh": torch.acosh}, 1.0, elementwise=True)
    add(
        (6,),
        {
            "atanh": torch.atanh,
            "logit": lambda x: torch.log(0.5 + x / 2.1) - torch.log(0.5 - x / 2.1),
        },
        -0.95,
        0.95,
        elementwise=True,
    )
    add((6,), {"asin": torch.asin, "acos": torch.acos}, -1.0, 1.0, elementwise=True)
    add((6,), {"tan": torch.tan}, -1.5, 1.5, elementwise=True)
    add((6,), {"tan, second branch": torch.tan}, 1.7, 4.6, elementwise=True)
    add(
        (6,),
        {
            "pow, tensor exponent, any base": (
                torch.pow,
                torch.tensor([2.0, 2.0, 3.0, 0.0, 1.0, 4.0]),
            )
        },
        elementwise=True,
    )
