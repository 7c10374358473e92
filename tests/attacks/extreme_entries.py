"""The elementwise operators that are attacked at extreme arguments, and where they are defined."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, special

from boundlab.rules import casts
from boundlab.rules.registry import RULES
from tests.helpers.registry import built_in

PRECISIONS = (torch.float32, torch.float64)
INF = math.inf
Unary = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Entry:
    """function: of x (intervals, width). low, high: where its argument may lie, ends included.
    points: arguments of interest. poles: between which an interval must lie, at pi / 2 + k pi.
    scatters: the operator itself rounds relative to |x|, not to |f|."""

    function: Unary
    low: float = -INF
    high: float = INF
    points: tuple[float, ...] = ()
    width: int = 1
    poles: bool = False
    scatters: bool = False
    steep: bool = False
    """Its slope is no number of the type, so that there are no lines, only bounds."""
    fixed: bool = False
    """torch.export fixes its batch size."""


def _binary(function: Callable[[Tensor, Tensor], Tensor], **domain: float) -> Entry:
    return Entry(lambda x: function(x[:, :1], x[:, 1:]), width=2, **domain)  # type: ignore[arg-type]


def _knots(x: Tensor) -> Tensor:
    return torch.tensor([-1e3, -1.0, 0.0, 1e-3, 2.0], dtype=x.dtype)


TINY = 1e-45
"""Rounds to the least positive number in single precision, and is positive in double precision."""
aten = torch.ops.aten
TABLE: dict[str, Entry] = {
    name: Entry(function)
    for name, function in {
        "tanh": torch.tanh, "sigmoid": torch.sigmoid, "atan": torch.atan, "erf": torch.erf,
        "asinh": torch.asinh, "sinh": torch.sinh, "exp": torch.exp,
        "expm1": torch.expm1, "exp2": torch.exp2, "cosh": torch.cosh, "square": torch.square,
        "logsigmoid": F.logsigmoid, "abs": torch.abs, "relu6": F.relu6,
        "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "sign": torch.sign,
        "sgn": torch.sgn, "selu": F.selu, "silu": F.silu, "mish": F.mish,
        "softsign": F.softsign, "relu": torch.relu, "sin": torch.sin, "cos": torch.cos,
        "floor": torch.floor, "ceil": torch.ceil,
        "round": torch.round, "trunc": torch.trunc, "fix": torch.fix,
        "bucketize": lambda x: torch.bucketize(x, _knots(x)).to(x.dtype),
        "searchsorted": lambda x: torch.searchsorted(_knots(x), x, side="right").to(x.dtype),
        "x * x": lambda x: x * x, "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
        "-x": lambda x: -x, "x + 1": lambda x: x + 1, "x - 1e30": lambda x: x - 1e30,
        "comparison": lambda x: (x > 1.0).to(x.dtype),
        "where": lambda x: torch.where(x > 1.0, x, -x),
        "maximum": lambda x: torch.maximum(x, 0.5 * x - 1),
        "minimum": lambda x: torch.minimum(x, -x),
        "softmax of two": lambda x: torch.cat([x, torch.zeros_like(x)], 1).softmax(1)[:, :1],
        "logsumexp of two": lambda x: (
            torch.cat([x, torch.ones_like(x)], 1).logsumexp(1, keepdim=True)
        ),
    }.items()
}  # fmt: skip
TABLE |= {
    "log": Entry(torch.log, TINY), "log2": Entry(torch.log2, TINY),
    "log10": Entry(torch.log10, TINY), "log1p": Entry(torch.log1p, -1 + 1e-7),
    "sqrt": Entry(torch.sqrt, 0.0), "rsqrt": Entry(torch.rsqrt, TINY),
    "asin": Entry(torch.asin, -1.0, 1.0), "acos": Entry(torch.acos, -1.0, 1.0),
    "atanh": Entry(torch.atanh, -1 + 1e-7, 1 - 1e-7), "acosh": Entry(torch.acosh, 1.0),
    "reciprocal, positive": Entry(torch.reciprocal, TINY),
    "reciprocal, negative": Entry(torch.reciprocal, high=-TINY),
    "tan": Entry(torch.tan, poles=True), "x log x": Entry(lambda x: x * torch.log(x), TINY),
    "logit": Entry(torch.logit, 1e-7, 1 - 1e-7),
    "log of softplus": Entry(lambda x: torch.log(F.softplus(x)), -80.0),
}  # fmt: skip
TABLE |= {
    "gelu": Entry(F.gelu, scatters=True),
    "gelu, tanh": Entry(lambda x: F.gelu(x, approximate="tanh"), scatters=True),
    "tanhshrink": Entry(F.tanhshrink, scatters=True),
    "frac": Entry(lambda x: x - torch.trunc(x), scatters=True),
}  # fmt: skip
TABLE |= {
    f"leaky_relu, {a}": Entry(lambda x, a=a: F.leaky_relu(x, a)) for a in (0.01, 1.5, -0.5, 1e-30)
}
TABLE |= {
    f"prelu, {a}": Entry(lambda x, a=a: F.prelu(x, torch.full((1,), a, dtype=x.dtype)))
    for a in (0.3, -2.0)
}
TABLE |= {f"elu, {a}": Entry(lambda x, a=a: F.elu(x, a)) for a in (0.5, 1.0, 2.0, -1.0)}
TABLE |= {f"celu, {a}": Entry(lambda x, a=a: F.celu(x, a)) for a in (0.5, 2.0, 1e-3, -1.0)}
TABLE |= {
    f"hardtanh, {a}, {b}": Entry(lambda x, a=a, b=b: F.hardtanh(x, a, b), points=(a, b))
    for a, b in ((-1.0, 1.0), (1e20, 1e21))
}
TABLE |= {
    f"softshrink, {a}": Entry(lambda x, a=a: F.softshrink(x, a), points=(a, -a))
    for a in (0.5, 1e10)
}
TABLE |= {
    f"hardshrink, {a}": Entry(lambda x, a=a: F.hardshrink(x, a), points=(a, -a))
    for a in (0.5, 0.1, 1e10)
}
TABLE |= {
    f"threshold, {a}, {b}": Entry(lambda x, a=a, b=b: F.threshold(x, a, b), points=(a,))
    for a, b in ((0.5, 2.0), (0.1, -1e20), (1e20, 0.0))
}
TABLE |= {
    f"clamp, {a}, {b}": Entry(lambda x, a=a, b=b: torch.clamp(x, a, b), points=(a, b))
    for a, b in ((-0.1, 0.7), (-1e30, 1e-30))
}
TABLE |= {
    "clamp_min": Entry(lambda x: x.clamp_min(0.1), points=(0.1,)),
    "clamp_max": Entry(lambda x: x.clamp_max(-0.1), points=(-0.1,)),
}
TABLE |= {
    f"softplus, {beta}, {at}": Entry(
        lambda x, beta=beta, at=at: F.softplus(x, beta, at), points=(at / beta,)
    )
    for beta, at in (
        (1.0, 20.0),
        (1.0, 1.0),
        (3.0, 20.0),
        (1e-3, 20.0),
        (100.0, 20.0),
        (1.0, 30.0),
        (-1.0, 20.0),
        (1.0, 100.0),
    )
}
TABLE |= {f"pow, {p}": Entry(lambda x, p=p: x**p) for p in (0, 1, 2, 3, 4, 7, 50)}
TABLE |= {
    f"pow, {p}, positive": Entry(lambda x, p=p: x**p, TINY)
    for p in (0.5, 1.5, 1 / 3, -0.5, -1, -2, -3, 10.7, 1e-3)
}
TABLE |= {f"pow, {p}, negative": Entry(lambda x, p=p: x**p, high=-TINY) for p in (-1, -2, -3)}
TABLE |= {f"{a} ** x": Entry(lambda x, a=a: a**x) for a in (2.0, 0.3, 1e-30, 1.0)}
DIVISORS = (1e-39, 1e-30, 1e-7, 0.1, 3.0, 7.0, 1e7, 1e30, 1e38)
TABLE |= {f"x / {c}": Entry(lambda x, c=c: x / c, steep=c < 1e-38) for c in DIVISORS}
INVERTIBLE = 3e-39
"""Above it 1 / x is a number in single precision. A quotient of tensors is read as x times 1 / y:
below, bounds are wide, and a graph whose example is that small is refused."""
TABLE |= {
    f"x / tensor {c}": Entry(lambda x, c=c: x / torch.full_like(x, c))
    for c in DIVISORS
    if abs(c) > INVERTIBLE
}
TABLE |= {f"{c} / x": Entry(lambda x, c=c: c / x, TINY) for c in (1e-38, 1.0, 7.0, 1e38)}
TABLE |= {f"x * {c}": Entry(lambda x, c=c: x * c) for c in (1e-39, 0.1, 1e30)}
TABLE |= {
    f"remainder, {c}": Entry(lambda x, c=c: torch.remainder(x, c), points=(c, -c))
    for c in (0.7, 1.0, -3.0, 1e-20, 1e20)
}
TABLE |= {
    f"fmod, {c}": Entry(lambda x, c=c: torch.fmod(x, c), points=(c, -c))
    for c in (0.7, 1.0, -3.0, 1e-20, 1e20)
}
TABLE |= {
    "erfc": Entry(torch.erfc), "erfinv": Entry(torch.erfinv, -1 + 1e-7, 1 - 1e-7),
    "special_ndtr": Entry(special.ndtr, scatters=True), "special_log_ndtr": Entry(special.log_ndtr),
    "special_ndtri": Entry(special.ndtri, TINY, 1 - 1e-7),
    "special_entr": Entry(special.entr, 0.0, points=(math.exp(-1),)),
    "lgamma": Entry(torch.lgamma, TINY, points=(1.4616321449683623, 2.0)),
    "digamma": Entry(torch.digamma, TINY, points=(1.4616321449683623,)),
    "sinc": Entry(torch.sinc, points=(1.4303, 12.4742, 100.5)),
    "frac, operator": Entry(torch.frac), "nan_to_num": Entry(torch.nan_to_num),
    "nan_to_num, 1.0, 2.0, 3.0": Entry(lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0)),
    "heaviside": Entry(lambda x: torch.heaviside(x.detach(), torch.full_like(x, 0.5))),
    "signbit": Entry(lambda x: torch.where(torch.signbit(x), x, 1.0)),
    "copysign": Entry(lambda x: torch.copysign(x, -1.0)),
}  # fmt: skip
TABLE |= {
    f"huber, {d}": Entry(
        lambda x, d=d: F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=d),
        points=(d, -d),
    )
    for d in (1.0, 1e-10, 1e10)
}
TABLE |= {
    f"smooth_abs, {b}": Entry(
        lambda x, b=b: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=b),
        points=(b, -b),
    )
    for b in (0.3, 1e10)
}
TABLE |= {
    f"atan2 to {c}": Entry(lambda x, c=c: torch.atan2(x, torch.full_like(x, c)), points=(c, -c))
    for c in (1.0, -1.0, 0.0, 1e-30, 1e30)
}
TABLE |= {
    f"atan2 of {c}": Entry(lambda x, c=c: torch.atan2(torch.full_like(x, c), x), points=(c, -c))
    for c in (1.0, -1.0, 0.0, 1e30)
}
TABLE |= {
    f"logit, {e}": Entry(lambda x, e=e: torch.logit(x, e), points=(e, 1 - e)) for e in (1e-3, 0.7)
}
TABLE |= {
    f"fake_quantize_per_tensor_affine, {s}, {z}": Entry(
        lambda x, s=s, z=z: torch.fake_quantize_per_tensor_affine(x, s, z, -128, 127),
        points=(s / 2, 127 * s, -128 * s, 127.5 * s, -128.5 * s),
        fixed=True,
    )
    for s, z in ((0.1, 3), (1e-6, 0), (1e10, -7))
}
TABLE |= {
    f"fake_quantize_per_channel_affine, {s}": Entry(
        lambda x, s=s: torch.fake_quantize_per_channel_affine(
            x, torch.full((1,), s), torch.ones(1, dtype=torch.int32), 1, 0, 255
        ),
        -4e18 * s,
        4e18 * s,
        points=(s / 2, -s / 2, 254 * s, 254.5 * s),
        fixed=True,
    )
    for s in (0.1, 1e-6, 1e10)
}
TABLE |= {
    f"div, {mode}, {c}": Entry(lambda x, c=c, mode=mode: torch.div(x, c, rounding_mode=mode))
    for mode in ("floor", "trunc")
    for c in (0.7, 0.1, -3.0)
}
TABLE |= {
    f"hypot, {c}": Entry(lambda x, c=c: torch.hypot(x, torch.full_like(x, c)))
    for c in (0.0, 1e-25, 1.0, 1e20, 1e38)
}
TABLE |= {
    f"logaddexp, {c}": Entry(lambda x, c=c: torch.logaddexp(x, torch.full_like(x, c)))
    for c in (0.0, -1e30, 1e30, 50.0)
}
TABLE |= {
    "addcdiv": Entry(
        lambda x: torch.addcdiv(torch.ones_like(x), x, torch.full_like(x, 3.0)), scatters=True
    )
}
TABLE |= {
    f"lerp from {c}, {w}": Entry(
        lambda x, c=c, w=w: torch.lerp(torch.full_like(x, c), x, w), scatters=True
    )
    for c in (1.0, 1e30)
    for w in (0.3, 0.5, 1.0)
}
TABLE |= {
    f"lerp to {c}, {w}": Entry(
        lambda x, c=c, w=w: torch.lerp(x, torch.full_like(x, c), w), scatters=True
    )
    for c in (1.0, 1e30)
    for w in (0.3, 1.0)
}
TABLE |= {
    "x * y": _binary(torch.mul), "x / y": _binary(torch.div, low=INVERTIBLE),
    "hypot, both": _binary(torch.hypot), "logaddexp, both": _binary(torch.logaddexp),
    "lerp, both": _binary(lambda x, y: torch.lerp(x, y, 0.7)),
    "x ** y": _binary(torch.pow, low=1e-3, high=1e3), "x + y": _binary(torch.add),
    "atan2, both": _binary(torch.atan2), "atan2, positive": _binary(torch.atan2, low=TINY),
    "xlogy, both": _binary(torch.xlogy, low=1e-3, high=1e3),
    "fmod, both": _binary(torch.fmod, low=1e-30),
    "copysign, both": _binary(torch.copysign),
    "x - y": _binary(torch.sub), "maximum, both": _binary(torch.maximum),
}  # fmt: skip

COVERS = {
    "log_sigmoid": "logsigmoid",
    "log_sigmoid_forward": "logsigmoid",
    "pow.Tensor_Scalar": "pow, 2",
    "pow.Scalar": "2.0 ** x",
    "round.default": "round",
    "nan_to_num_of_inputs": "nan_to_num",
    "bucketize.Tensor": "bucketize",
    "searchsorted.Tensor": "searchsorted",
}
"""Operators that the table has under another name."""


def covered() -> dict[str, bool]:
    """Which elementwise operators of the registry the table has."""
    names = [
        str(op).removeprefix("aten.")
        if not hasattr(op, "__name__") or "aten" in str(op)
        else op.__name__
        for op, rule in RULES.items()
        # attacked by themselves
        if rule.kind == "elementwise"
        and built_in(op)
        and op not in (casts.rounded, casts.rounded_in_place, casts.cut_off)
    ]
    return {
        name: any(
            key == COVERS.get(name, name) or key.startswith(COVERS.get(name, name) + ",")
            for key in TABLE
        )
        for name in names
    }
