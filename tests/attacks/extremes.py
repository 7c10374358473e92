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
from torch import Tensor

import boundlab as bl
from tests.attacks.extreme_entries import INF, PRECISIONS, TABLE, Unary, covered
from tests.attacks.extreme_points import intervals, log_uniform, members, ulp

METHODS = ("ibp", "crown", "forward", "alpha-crown")


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
            (4 * ulp(points).amax(2, keepdim=True) if entry.scatters else torch.zeros_like(truth))
            .double()
            .nan_to_num(0, 0, 0)
        )
        tallies = []
        try:
            few = low.clamp(-1e30, 1e30) if entry.fixed else low[:3].clamp(-1e30, 1e30).clone()
            net = bl.capture(entry.function, few, batched=True)
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
    strict = 4 * ulp(torch.maximum(truth.abs(), size * lines)).double() + lines * 4 * eps * (
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
    strict = 4 * ulp(torch.maximum(truth.abs(), size)).double() + 4 * eps * steep * (
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
    ulps = apart / ulp(truth).double().clamp(min=5e-324)
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
    turns = log_uniform(g, (count,), 0, 7 if dtype == torch.float64 else 6.5).round()
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
