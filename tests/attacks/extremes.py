"""Elementwise operators at extreme arguments: ``python -m tests.attacks.extremes --count N --seed S
[--only NAME]``.

For every operator N intervals in each precision: centres from 1e-40 to 1e38 of both signs, near
integers, multiples of pi, powers of two, thresholds, ends of domains, subnormal and the largest
numbers; of no width, one unit in the last place, and up to very wide. A point of the interval is
pushed through the operator itself, in the same precision; its value must lie within the bounds.

What rounding may cost, in units in the last place (ulp) of the precision in question:

- strict: 4 ulp of |f(x)| for interval arithmetic; for lines 4 ulp of the largest |f| on the
  interval, and of |slope| (u - l), and the least normal number, below which products round
  coarsely; for operators whose own values scatter, because they cancel inside (gelu, x - tanh x,
  lerp, addcdiv), 4 ulp of |x| in either case;
- excused: for lines also 4 ulp of the largest |slope x|, which a line that is stored as slope and
  intercept at 0 loses.

A finding is a value beyond what is excused, or beyond 1e-3 of the largest |f| on the interval, or
bounds that are NaN or exclude every finite number where the value is finite, or a DomainError where
every point has a value.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

import boundlab as bl
from boundlab.rules import casts
from boundlab.rules.registry import RULES
from tests.helpers.registry import built_in

METHODS = ("ibp", "crown", "forward", "alpha-crown")
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


def _binary(function: Callable[[Tensor, Tensor], Tensor], **domain: float) -> Entry:
    return Entry(lambda x: function(x[:, :1], x[:, 1:]), width=2, **domain)  # type: ignore[arg-type]


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
TABLE |= {f"fmod, {c}": Entry(lambda x, c=c: torch.fmod(x, c), points=(c, -c)) for c in (0.7,)}
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
    "x - y": _binary(torch.sub), "maximum, both": _binary(torch.maximum),
}  # fmt: skip

COVERS = {
    "log_sigmoid": "logsigmoid",
    "log_sigmoid_forward": "logsigmoid",
    "pow.Tensor_Scalar": "pow, 2",
    "pow.Scalar": "2.0 ** x",
    "round.default": "round",
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


# -- intervals and points --------------------------------------------------------------------------


def _ulp(x: Tensor) -> Tensor:
    kind = torch.finfo(x.dtype)
    return torch.maximum(x.abs() * kind.eps, torch.full_like(x, kind.smallest_normal * kind.eps))


def _log_uniform(g: torch.Generator, shape: tuple[int, ...], low: float, high: float) -> Tensor:
    unit = torch.rand(shape, generator=g, dtype=torch.float64)
    sign = torch.where(torch.rand(shape, generator=g) < 0.5, -1.0, 1.0)
    return sign * 10 ** (low + unit * (high - low))


def _places(g: torch.Generator, shape: tuple[int, ...], entry: Entry, dtype: torch.dtype) -> Tensor:
    """Arguments of interest, in double precision."""
    kind = torch.finfo(dtype)
    ends = [end for end in (entry.low, entry.high) if math.isfinite(end)]
    named = [
        0.0,
        0.5,
        -0.5,
        1.0,
        -1.0,
        1.5,
        -1.5,
        3.0,
        -3.0,
        6.0,
        20.0,
        -20.0,
        88.7,
        -88.7,
        -103.9,
        709.7,
        -745.1,
        16.6,
        -16.6,
        9.01,
        -9.01,
        -1.2785,
        -0.7518,
        -1.1924,
    ]
    named += [
        kind.max,
        -kind.max,
        kind.tiny,
        -kind.tiny,
        kind.smallest_normal * kind.eps,
        2.0**24,
        2.0**53,
        1e6,
        1e15,
        *entry.points,
        *ends * 8,
    ]
    table = torch.tensor(named, dtype=torch.float64)
    whole = _log_uniform(g, shape, 0, 16).round()
    pick = lambda: table[torch.randint(len(table), shape, generator=g)]
    choices = [
        _log_uniform(g, shape, -40, 38), _log_uniform(g, shape, -3, 3), whole,
        whole * (math.pi / 2), 2.0 ** torch.randint(-149, 128, shape, generator=g),
        pick(), pick() * (1 + _log_uniform(g, shape, -16, -1)),
    ]  # fmt: skip
    if math.isfinite(entry.low) or math.isfinite(entry.high):
        end = entry.low if math.isfinite(entry.low) else entry.high
        choices.append(end + _log_uniform(g, shape, -16, 2))
    pick = torch.randint(len(choices), shape, generator=g)
    return torch.stack(choices).gather(0, pick[None])[0]


def _within(x: Tensor, entry: Entry, dtype: torch.dtype) -> Tensor:
    """In the precision asked for, finite, and in the domain."""
    largest = torch.finfo(dtype).max
    x = x.clamp(-largest, largest).to(dtype)
    return x.clamp(torch.tensor(entry.low, dtype=dtype), torch.tensor(entry.high, dtype=dtype))


def intervals(
    entry: Entry, count: int, dtype: torch.dtype, seed: int, infinite: bool = False
) -> tuple[Tensor, Tensor]:
    """lower, upper: (count, width). infinite: with ends at infinity where the domain goes that
    far."""
    g = torch.Generator().manual_seed(seed)
    shape = (count, entry.width)
    centre = _places(g, shape, entry, dtype).clamp(
        -torch.finfo(dtype).max / 20, torch.finfo(dtype).max / 20
    )
    relative = centre.abs() * 10 ** (torch.rand(shape, generator=g, dtype=torch.float64) * 8 - 8)
    absolute = _log_uniform(g, shape, -6, 3).abs()
    last = centre.abs() * torch.finfo(dtype).eps
    radii = torch.stack(
        [
            torch.zeros(shape, dtype=torch.float64),
            last,
            3 * last,
            relative,
            relative,
            absolute,
            centre.abs(),
            10 * centre.abs() + 1,
        ]
    )
    radius = radii.gather(0, torch.randint(len(radii), shape, generator=g)[None])[0]
    lean = torch.rand(shape, generator=g, dtype=torch.float64)
    low, up = (
        _within(centre - lean * radius, entry, dtype),
        _within(centre + (1 - lean) * radius, entry, dtype),
    )
    low, up = torch.minimum(low, up), torch.maximum(low, up)
    largest = torch.rand(shape, generator=g) < 0.01
    up = torch.where(largest, _within(torch.full_like(centre, INF), entry, dtype), up)
    if entry.poles:
        low, up = _between_poles(low, up)
    if infinite:
        side = torch.randint(3, shape, generator=g)
        low = torch.where((side != 0) & (torch.tensor(entry.low) == -INF), -INF, low)
        up = torch.where((side != 1) & (torch.tensor(entry.high) == INF), INF, up)
    return low, up


def _between_poles(low: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Intervals of tan that are clear of its poles, by more than rounding can hide; a point at 1 in
    place of the others."""
    turns = lambda x: x.double() / math.pi + 0.5
    doubt = 1e-3 + 32 * torch.finfo(low.dtype).eps * torch.maximum(low.abs(), up.abs()).double()
    clear = lambda x: (turns(x) - turns(x).round()).abs() * math.pi > doubt
    good = (turns(low).floor() == turns(up).floor()) & clear(low) & clear(up) & (doubt < 0.1)
    return torch.where(good, low, 1.0), torch.where(good, up, 1.0)


def members(entry: Entry, low: Tensor, up: Tensor, seed: int) -> Tensor:
    """Points of the intervals: (points, count, width)."""
    g = torch.Generator().manual_seed(seed + 1)
    kind = torch.finfo(low.dtype)
    a, b = low.double().clamp(-kind.max, kind.max), up.double().clamp(-kind.max, kind.max)
    inward = torch.tensor(0, dtype=low.dtype)
    found = [
        low,
        up,
        torch.nextafter(low, up),
        torch.nextafter(up, low),
        (a / 2 + b / 2).to(low.dtype),
        inward.expand_as(low),
    ]
    for _ in range(4):
        unit = torch.rand(low.shape, generator=g, dtype=torch.float64)
        found.append((a + unit * (b - a)).to(low.dtype) if entry.width else low)
    for _ in range(2):  # much closer to one of the ends
        unit = 10 ** (-16 * torch.rand(low.shape, generator=g, dtype=torch.float64))
        found += [(a + unit * (b - a)).to(low.dtype), (b - unit * (b - a)).to(low.dtype)]
    for _ in range(3):  # at an argument of interest, and beside it
        place = (
            _places(g, tuple(low.shape), entry, low.dtype).clamp(-kind.max, kind.max).to(low.dtype)
        )
        found += [
            place,
            torch.nextafter(place, torch.full_like(place, INF)),
            torch.nextafter(place, torch.full_like(place, -INF)),
        ]
    for turn in (0.0, 0.5, 1.0, 1.5):  # where sine and cosine turn
        found.append(
            (((a / 2 + b / 2) / math.pi - turn).round() * math.pi + turn * math.pi).to(low.dtype)
        )
    if entry.width > 1:  # corners
        found += [torch.cat([low[:, :1], up[:, 1:]], 1), torch.cat([up[:, :1], low[:, 1:]], 1)]
    return torch.stack([torch.minimum(torch.maximum(point, low), up) for point in found])


# -- asking ----------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What was found of one operator, precision and method. worst: in ulp of |f(x)|, with what
    reproduces it."""

    name: str
    dtype: torch.dtype
    method: str
    intervals: int = 0
    outside: int = 0
    beyond_4_ulp: int = 0
    beyond_strict: int = 0
    beyond_excused: int = 0
    beyond_relative: int = 0
    ordinary: int = 0
    """How many of these lie within 1e4 of 0 and have values of more than 1e-30."""
    nan: int = 0
    empty: int = 0
    refused: int = 0
    worst: float = 0.0
    example: str = ""
    examples: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def bad(self) -> bool:
        return bool(
            self.beyond_excused
            or self.beyond_relative
            or self.nan
            or self.empty
            or self.refused
            or (self.error and not self.error.startswith("UnsupportedOperator"))
        )

    def __str__(self) -> str:
        head = (
            f"{'FINDING ' if self.bad else 'ok      '}{self.name:28} "
            f"{str(self.dtype).removeprefix('torch.')} {self.method:16}"
        )
        if self.error:
            return f"{head} {self.error[:200]}"
        counts = (
            f"{self.intervals} intervals: outside {self.outside}, > 4 ulp {self.beyond_4_ulp}, > "
            f"strict {self.beyond_strict}, > excused {self.beyond_excused}, > 1e-3 "
            f"{self.beyond_relative} (ordinary arguments {self.ordinary})"
        )
        others = "".join(
            f", {what} {n}"
            for what, n in (
                ("NaN", self.nan),
                ("excludes all finite values", self.empty),
                ("DomainError", self.refused),
            )
            if n
        )
        lines = "".join(
            f"\n        {example}"
            for example in ([self.example] if self.example else []) + self.examples
        )
        return f"{head} {counts}{others}, worst {self.worst:.3g} ulp{lines}"


def _steepest(function: Unary, points: Tensor) -> Tensor:
    """The largest finite |f'| at the points of each interval: (count, 1)."""
    with torch.enable_grad():
        at = points.flatten(0, 1).requires_grad_()
        value = function(at)
        slope = (
            torch.autograd.grad(value.sum(), at)[0] if value.requires_grad else torch.zeros_like(at)
        )
    slope = slope.abs().double().sum(1).reshape(points.shape[:2])
    return torch.where(torch.isfinite(slope), slope, 0).amax(0).unsqueeze(1)


REFUSALS = 12
"""How many single intervals that are refused are looked for before the rest counts as refused
too."""
Ends = tuple[Tensor, Tensor]


def _ask(
    ask: Callable[[Tensor, Tensor], Ends], low: Tensor, up: Tensor, left: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Bounds of all intervals, and which of them raise DomainError: found by halving. left: how
    many more may be looked for."""
    try:
        return *ask(low, up), torch.zeros(len(low), dtype=torch.bool)
    except bl.DomainError:
        if len(low) == 1 or left[0] <= 0:
            left[0] -= 1
            infinite = torch.full((len(low), 1), INF, dtype=low.dtype)
            return -infinite, infinite, torch.ones(len(low), dtype=torch.bool)
    half = len(low) // 2
    parts = [
        _ask(ask, low[part], up[part], left) for part in (slice(None, half), slice(half, None))
    ]
    return tuple(torch.cat(pair) for pair in zip(*parts, strict=True))  # type: ignore[return-value]


def attack(
    name: str,
    dtype: torch.dtype,
    count: int,
    seed: int = 0,
    infinite: bool = False,
    methods: tuple[str, ...] = METHODS,
) -> list[Tally]:
    """One operator in one precision, by every method, and its lines point by point."""
    entry = TABLE[name]
    low, up = intervals(entry, count, dtype, seed, infinite)
    points = members(entry, low, up, seed)
    with torch.no_grad():
        truth = torch.stack([entry.function(point) for point in points])
        label = name + (", infinite ends" if infinite else "")
        slope = _steepest(entry.function, points)
        noise = (
            (4 * _ulp(points).amax(2, keepdim=True) if entry.scatters else torch.zeros_like(truth))
            .double()
            .nan_to_num(0, 0, 0)
        )
        tallies = []
        try:
            net = bl.capture(entry.function, low[:3].clamp(-1e30, 1e30).clone(), batched=True)
        except Exception as error:
            return [Tally(label, dtype, "capture", error=f"{type(error).__name__}: {error}")]
        defined = ~torch.isnan(truth).any(0)[:, 0]
        for method in methods:
            alpha = bl.Alpha(iterations=2) if method == "alpha-crown" else None
            ask = lambda l, u, method=method, alpha=alpha: tuple(
                net.bounds(bl.Box(l, u), method=method, alpha=alpha)
            )
            tallies.append(
                _judge(
                    Tally(label, dtype, method, count),
                    ask,
                    low,
                    up,
                    points,
                    truth,
                    slope,
                    noise,
                    defined,
                )
            )
        if not infinite and not entry.steep:
            tallies.append(
                _judge_lines(
                    Tally(label, dtype, "lines, pointwise", count),
                    net,
                    low,
                    up,
                    points,
                    truth,
                    noise,
                )
            )
    return tallies


def _judge(
    tally: Tally,
    ask: Callable[[Tensor, Tensor], Ends],
    low: Tensor,
    up: Tensor,
    points: Tensor,
    truth: Tensor,
    slope: Tensor,
    noise: Tensor,
    defined: Tensor,
) -> Tally:
    try:
        lower, upper, refused = _ask(ask, low, up, [REFUSALS])
    except Exception as error:
        tally.error = f"{type(error).__name__}: {error}"
        return tally
    tally.refused = int((refused & defined).sum())
    for k in (refused & defined).nonzero()[:1, 0].tolist():
        tally.examples.append(f"DomainError on {_interval(low[k], up[k])}")
    finite = torch.isfinite(truth)
    nan = (torch.isnan(lower) | torch.isnan(upper)) & finite.any(0) & defined[:, None]
    largest = torch.finfo(low.dtype).max
    empty = ((lower > largest) | (upper < -largest)) & finite.any(0)
    for what, mask in (("NaN", nan), ("excludes all finite values", empty)):
        for k in mask.nonzero()[:1, 0].tolist():
            tally.examples.append(
                f"{what}: {_interval(low[k], up[k])} gives [{float(lower[k]):.9g}, "
                f"{float(upper[k]):.9g}], but f = {_some(truth[:, k])}"
            )
    tally.nan, tally.empty = int(nan.sum()), int(empty.sum())
    size = torch.where(finite, truth.abs(), 0).amax(0)
    reach = torch.maximum(low.abs(), up.abs()).double().amax(1, keepdim=True)
    width = (up.double() - low.double()).amax(1, keepdim=True)
    lines = 0 if tally.method == "ibp" else 1
    eps = torch.finfo(low.dtype).eps
    strict = 4 * _ulp(torch.maximum(truth.abs(), size * lines)).double() + lines * 4 * eps * (
        slope * width
    ).nan_to_num(0, 0, 0)
    strict = strict + noise + lines * torch.finfo(low.dtype).smallest_normal
    excused = strict + lines * 4 * eps * (slope * reach).nan_to_num(0, 0, 0)
    return _count(
        tally, lower.double(), upper.double(), low, up, points, truth, size, strict, excused
    )


def _judge_lines(
    tally: Tally, net: bl.Net, low: Tensor, up: Tensor, points: Tensor, truth: Tensor, noise: Tensor
) -> Tally:
    try:
        found = net.linear_bounds(bl.Box(low, up))
    except bl.DomainError:
        return tally  # counted with the methods
    except Exception as error:
        tally.error = f"{type(error).__name__}: {error}"
        return tally
    (below,), (above,) = found.lower_A.values(), found.upper_A.values()
    at = points.double()
    lower = (below[:, 0].double() * at).sum(2, keepdim=True) + found.lower_b.double()
    upper = (above[:, 0].double() * at).sum(2, keepdim=True) + found.upper_b.double()
    finite = torch.isfinite(truth)
    bad = (torch.isnan(lower) | torch.isnan(upper)) & finite
    tally.nan = int(bad.any(0).sum())
    for k in bad.any(0).nonzero()[:1, 0].tolist():
        tally.examples.append(
            f"NaN: lines on {_interval(low[k], up[k])}: {float(below[k].flatten()[0]):.9g} x + "
            f"{float(found.lower_b[k]):.9g}, {float(above[k].flatten()[0]):.9g} x + "
            f"{float(found.upper_b[k]):.9g}"
        )
    size = torch.where(finite, truth.abs(), 0).amax(0)
    eps = torch.finfo(low.dtype).eps
    steep = torch.maximum(below[:, 0].abs(), above[:, 0].abs()).double().sum(1, keepdim=True)
    strict = 4 * _ulp(torch.maximum(truth.abs(), size)).double() + 4 * eps * steep * (
        up.double() - low.double()
    ).amax(1, keepdim=True)
    strict = strict + noise + torch.finfo(low.dtype).smallest_normal
    excused = strict + 4 * eps * steep * torch.maximum(low.abs(), up.abs()).double().amax(
        1, keepdim=True
    )
    return _count(tally, lower, upper, low, up, points, truth, size, strict, excused)


def _count(
    tally: Tally,
    lower: Tensor,
    upper: Tensor,
    low: Tensor,
    up: Tensor,
    points: Tensor,
    truth: Tensor,
    size: Tensor,
    strict: Tensor,
    excused: Tensor,
) -> Tally:
    value = truth.double()
    # An infinite value is a value too: a bound that is finite on that side misses it by more than
    # any finite number.
    apart = torch.maximum(
        (lower - value).nan_to_num(0, INF, -INF), (value - upper).nan_to_num(0, INF, -INF)
    )
    apart = torch.where(torch.isnan(value), -INF, apart)
    # rounding to infinity
    overflow = torch.isinf(value) & (
        torch.maximum(lower.abs(), upper.abs()) >= 0.999 * torch.finfo(truth.dtype).max
    )
    apart = torch.where(overflow, -INF, apart)
    ulps = apart / _ulp(truth).double().clamp(min=5e-324)
    ulps = torch.where(torch.isinf(value) & (apart > 0), INF, ulps)
    each = lambda mask: int((mask.reshape(len(points), -1).any(0)).sum())
    tally.outside, tally.beyond_4_ulp = each(apart > 0), each(ulps > 4)
    tally.beyond_strict, tally.beyond_excused = each(apart > strict), each(apart > excused)
    relative = apart > torch.maximum(1e-3 * size.double(), strict)
    tally.beyond_relative = each(relative)
    ordinary = (torch.maximum(low.abs(), up.abs()).amax(1, keepdim=True) <= 1e4) & (size > 1e-30)
    tally.ordinary = each((relative | (apart > excused)) & ordinary)
    tally.worst = max(0.0, float(ulps.nan_to_num(0, INF, -INF).max()))
    bad = apart > strict
    if bool(bad.any()):
        score = torch.where(
            bad & (ordinary | ~(bad & ordinary).any()),
            apart / size.double().clamp(min=1e-300),
            -INF,
        ).nan_to_num(-INF, INF, -INF)
        p, k = divmod(int(score.flatten().argmax()), score.shape[1])
        bounds = lambda b: float(b[p, k] if b.dim() == 3 else b[k])
        tally.example = (
            f"worst: {_interval(low[k], up[k])} at x = {_point(points[p, k])}: f = "
            f"{float(truth[p, k]):.9g}, bounds [{bounds(lower):.9g}, {bounds(upper):.9g}], outside "
            f"by {float(apart[p, k]):.3g}"
        )
    return tally


def _point(x: Tensor) -> str:
    return ", ".join(repr(float(v)) for v in x)


def _interval(low: Tensor, up: Tensor) -> str:
    return " x ".join(f"[{float(a)!r}, {float(b)!r}]" for a, b in zip(low, up, strict=True))


def _some(values: Tensor) -> str:
    finite = values[torch.isfinite(values)]
    return f"{float(finite.min()):.9g} ... {float(finite.max()):.9g}"


# -- poles -----------------------------------------------------------------------------------------


def poles_missed(dtype: torch.dtype, count: int = 200, seed: int = 0) -> list[str]:
    """Intervals of tan that hold a pole, one at a time: refused, or bounds that hold the values
    beside the pole."""
    g = torch.Generator().manual_seed(seed)
    net = bl.capture(torch.tan, torch.zeros(3, 1, dtype=dtype), batched=True)
    missed = []
    turns = _log_uniform(g, (count,), 0, 7 if dtype == torch.float64 else 6.5).round()
    for turn in turns.tolist():
        pole = torch.tensor((turn + 0.5) * math.pi, dtype=torch.float64)
        low, up = (pole - 1e-3).to(dtype), (pole + 1e-3).to(dtype)
        if not low.double() < pole < up.double():
            low, up = (
                torch.nextafter(low, torch.tensor(-INF, dtype=dtype)),
                torch.nextafter(up, torch.tensor(INF, dtype=dtype)),
            )
        try:
            bounds = net.bounds(bl.Box(low.reshape(1, 1), up.reshape(1, 1)), method="ibp")
        except bl.DomainError:
            continue
        values = torch.tan(
            torch.stack(
                [
                    low,
                    up,
                    pole.to(dtype),
                    torch.nextafter(pole.to(dtype), low),
                    torch.nextafter(pole.to(dtype), up),
                ]
            )
        )
        if (
            values.min() < bounds.lower.min()
            or values.max() > bounds.upper.max()
            or bool(torch.isnan(bounds.lower).any())
        ):
            missed.append(
                f"tan on [{float(low)!r}, {float(up)!r}] gives [{float(bounds.lower):.6g}, "
                f"{float(bounds.upper):.6g}] but takes {float(values.min()):.6g} and "
                f"{float(values.max()):.6g}"
            )
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--methods", default=",".join(METHODS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    missing = [name for name, found in covered().items() if not found]
    print(f"elementwise operators without an entry: {missing}")
    bad = 0
    for name in TABLE:
        if options.only not in name:
            continue
        for dtype in PRECISIONS:
            for infinite in (False, True):
                for tally in attack(
                    name,
                    dtype,
                    options.count if not infinite else max(options.count // 20, 100),
                    options.seed,
                    infinite,
                    tuple(options.methods.split(",")),
                ):
                    bad += tally.bad
                    if tally.bad or not infinite:
                        print(tally, flush=True)
    for dtype in PRECISIONS:
        for missed in poles_missed(dtype) if options.only in "tan" else ():
            bad += 1
            print("FINDING pole:", missed)
    print(f"{bad} findings")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
