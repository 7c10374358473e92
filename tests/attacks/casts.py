"""Casts between all types, chained: ``python -m tests.attacks.casts --count N --seed S [--only
NAME]``.

A model casts its input through one, two or three types, perhaps computes there, and comes back.
Many intervals are asked at once: around rounding boundaries of short floats, around whole numbers,
at the ends of integer ranges where values wrap around or saturate, beyond the range of half
precision, and up to infinity. The value is the model's own. A finding is a value outside bounds by
more than 4 units in the last place of it (for lines also of the largest |x|, as they are stored by
slope and intercept), or an error that is not boundlab's own. Refusing is allowed; intervals that
are refused although no value leaves the ranges are counted.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import boundlab as bl

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
TYPES = (*FLOATS, *WHOLE, torch.bool)
METHODS = ("ibp", "crown", "crown-ibp", "forward", "forward+backward", "alpha-crown")
INF = math.inf
WORK: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "": lambda y, x: y,
    "times 3": lambda y, x: y * 3,
    "plus x": lambda y, x: y + x,
    "squared": lambda y, x: y * y,
    "compared": lambda y, x: torch.where(y > 1, x, -x),
    "halved": lambda y, x: y / 2,
    "negated": lambda y, x: -y if y.dtype != torch.bool else ~y,
    "wide sum": lambda y, x: y.repeat(1, 5).sum(1, keepdim=True),
}


@dataclass(frozen=True)
class Chain:
    """From ``source`` through ``types``, then ``work``, and back."""

    source: torch.dtype
    types: tuple[torch.dtype, ...]
    work: str = ""

    def __call__(self, x: Tensor) -> Tensor:
        y = x
        for kind in self.types:
            y = y.to(kind)
        return WORK[self.work](y, x).to(self.source)

    def __str__(self) -> str:
        return " -> ".join(_short(kind) for kind in (self.source, *self.types)) + (
            f", {self.work}" if self.work else ""
        )


def _short(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def chains(seed: int, longer: int = 60, worked: int = 120) -> list[Chain]:
    """All chains of one and two types, some of three, and some with work in the last type."""
    rng = random.Random(seed)
    sources = (torch.float32, torch.float64)
    found = [
        Chain(source, types)
        for source in sources
        for length in (1, 2)
        for types in itertools.product(TYPES, repeat=length)
    ]
    found += [Chain(rng.choice(sources), tuple(rng.choices(TYPES, k=3))) for _ in range(longer)]
    found += [
        Chain(
            rng.choice(sources),
            tuple(rng.choices(TYPES, k=rng.choice([1, 1, 2]))),
            rng.choice([name for name in WORK if name]),
        )
        for _ in range(worked)
    ]
    return found


# -- intervals and points --------------------------------------------------------------------------

EDGES = torch.tensor(
    [0, 1, 127, 128, 255, 256, 257, 2**15 - 1, 2**15, 2**16, 65504, 65519, 65520, 65536,
     2**24, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64, 3.3895e38, 3.39e38,
     6e-8, 2.98e-8, 6.1e-5, 1e-38, 9.2e-41, 1e-45], dtype=torch.float64,
)  # fmt: skip


def _places(g: torch.Generator, count: int) -> Tensor:
    """Arguments of interest, in double precision: (count, 1)."""
    shape = (count, 1)
    sign = torch.where(torch.rand(shape, generator=g) < 0.5, -1.0, 1.0).double()
    unit = torch.rand(shape, generator=g, dtype=torch.float64)
    size = 10 ** (unit * 8 - 3)
    whole = (10 ** (unit * 3)).round()
    short = (size.to(torch.bfloat16).double(), size.clamp(max=6e4).to(torch.float16).double())
    choices = [
        size, 10 ** (unit * 76 - 38), whole, whole + 0.5, *short, short[0] * (1 + 2.0**-9),
        short[1] * (1 + 2.0**-12),
        EDGES[torch.randint(len(EDGES), shape, generator=g)],
        EDGES[torch.randint(len(EDGES), shape, generator=g)] + 4 * unit - 2,
    ]  # fmt: skip
    return (
        sign
        * torch.stack(choices).gather(0, torch.randint(len(choices), shape, generator=g)[None])[0]
    )


def intervals(source: torch.dtype, count: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    largest = torch.finfo(source).max
    centre = _places(g, count)
    unit = torch.rand(count, 1, generator=g, dtype=torch.float64)
    radii = torch.stack(
        [
            torch.zeros_like(unit),
            centre.abs() * torch.finfo(source).eps,
            centre.abs() * 10 ** (-6 * unit),
            unit,
            0.01 * unit,
            300 * unit,
            centre.abs() * 2.0**-9,
        ]
    )
    radius = radii.gather(0, torch.randint(len(radii), (1, count, 1), generator=g))[0]
    low, up = ((centre + sign * radius).clamp(-largest, largest).to(source) for sign in (-1, 1))
    up = torch.where(torch.rand(count, 1, generator=g) < 0.01, INF, up)
    low = torch.where(torch.rand(count, 1, generator=g) < 0.01, -INF, low)
    return low, up


def members(low: Tensor, up: Tensor, seed: int) -> Tensor:
    """Points of the intervals, among them those where short floats and whole numbers round the
    other way: (points, count, 1)."""
    g = torch.Generator().manual_seed(seed + 1)
    largest = torch.finfo(low.dtype).max
    a, b = low.double().clamp(-largest, largest), up.double().clamp(-largest, largest)
    found = [low, up, (a / 2 + b / 2).to(low.dtype), torch.zeros_like(low)]
    for _ in range(3):
        at = a + torch.rand(low.shape, generator=g, dtype=torch.float64) * (b - a)
        found.append(at.to(low.dtype))
        for kind in (torch.bfloat16, torch.float16, torch.float32):
            near = at.to(kind)
            after = torch.nextafter(near, torch.full_like(near, INF))
            found.append(
                (near.double() / 2 + after.double() / 2)
                .nan_to_num(0, largest, -largest)
                .to(low.dtype)
            )
        found += [at.round().to(low.dtype), (at.floor() + 0.5).to(low.dtype)]
    found += [
        EDGES[torch.randint(len(EDGES), low.shape, generator=g)].to(low.dtype) * sign
        for sign in (-1, 1)
        for _ in range(2)
    ]
    found += [
        torch.nextafter(point, torch.full_like(point, end))
        for point in found[2:]
        for end in (INF, -INF)
    ]
    return torch.stack([torch.minimum(torch.maximum(point, low), up) for point in found])


# -- asking ----------------------------------------------------------------------------------------


@dataclass
class Result:
    chain: Chain
    method: str
    outside: int = 0
    worst: str = ""
    refused: int = 0
    refused_in_range: int = 0
    refusal: str = ""
    error: str = ""

    @property
    def bad(self) -> bool:
        return bool(self.outside or self.error)

    def __str__(self) -> str:
        text = (
            f"{'FINDING' if self.bad else 'ok'} {self.chain}, {self.method}: {self.outside} "
            "intervals left"
        )
        refusals = (
            (
                f", {self.refused} refused ({self.refused_in_range} of them in range): "
                f"{self.refusal[:120]}"
            )
            if self.refused
            else ""
        )
        return (
            text
            + (f" {self.error[:300]}" if self.error else "")
            + refusals
            + (f"\n        {self.worst}" if self.worst else "")
        )


def in_range(chain: Chain, points: Tensor) -> Tensor:
    """Whether no point of an interval leaves the range of a type on its way: (count,)."""
    fine = torch.isfinite(points)
    y = points.double()
    for kind in chain.types:
        if kind in WHOLE:
            fine &= (y.trunc() >= torch.iinfo(kind).min) & (
                y.trunc() < float(torch.iinfo(kind).max)
            )
        elif kind in FLOATS:
            fine &= y.abs() <= torch.finfo(kind).max
        y = torch.where(fine, y, 0.0).to(kind).double()
    return fine.all(0)[:, 0]


def attack(
    chain: Chain, count: int, seed: int = 0, methods: tuple[str, ...] = METHODS
) -> list[Result]:
    low, up = intervals(chain.source, count, seed)
    points = members(low, up, seed)
    with torch.no_grad():
        truth = torch.stack([chain(point) for point in points])
        try:
            net = bl.capture(lambda x: chain(x), torch.ones(3, 1, dtype=chain.source), batched=True)
        except bl.BoundlabError as error:
            return [
                Result(chain, "capture", refused=count, refusal=f"{type(error).__name__}: {error}")
            ]
        except Exception as error:
            return [Result(chain, "capture", error=f"{type(error).__name__}: {error}")]
        return [_judge(Result(chain, method), net, low, up, points, truth) for method in methods]


def _judge(
    result: Result, net: bl.Net, low: Tensor, up: Tensor, points: Tensor, truth: Tensor
) -> Result:
    try:
        lower, upper, refused = _ask(result, net, low, up, [8])
    except Exception as error:
        result.error = f"{type(error).__name__}: {error}"
        return result
    result.refused = int(refused.sum())
    result.refused_in_range = int((refused & in_range(result.chain, points)).sum())
    eps, least = torch.finfo(low.dtype).eps, torch.finfo(low.dtype).smallest_normal
    size = (
        truth.abs()
        if result.method == "ibp"
        else torch.maximum(truth.abs(), torch.maximum(low.abs(), up.abs()))
    )
    room = 4 * eps * torch.where(torch.isfinite(size), size, 0).double() + 4 * eps * least
    # arithmetic in half precision rounds there, in the model as in its bounds
    if result.chain.work and result.chain.types:
        last = result.chain.types[-1]
        coarse = torch.finfo(last).eps if last.is_floating_point else 0.0
        room = (
            room
            + 2
            * coarse
            * torch.where(torch.isfinite(size), torch.maximum(size, truth.abs()), 0).double()
        )
    value = truth.double()
    apart = torch.maximum(
        (lower.double() - value).nan_to_num(INF, INF, -INF),
        (value - upper.double()).nan_to_num(INF, INF, -INF),
    )
    same = (value == lower) | (value == upper)  # infinite ones among them
    bad = (apart > room) & ~same & ~torch.isnan(value)
    result.outside = int(bad.any(0).sum())
    if result.outside:
        score = torch.where(bad, apart / (1 + value.abs()), -INF).nan_to_num(-INF, INF, -INF)
        p, k = divmod(int(score.flatten().argmax()), score.shape[1])
        result.worst = (
            f"worst: [{float(low[k])!r}, {float(up[k])!r}] at x = {float(points[p, k])!r}: f = "
            f"{float(truth[p, k])!r}, bounds [{float(lower[k])!r}, {float(upper[k])!r}]"
        )
    return result


def _ask(
    result: Result, net: bl.Net, low: Tensor, up: Tensor, left: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Bounds, and which intervals are refused: found by halving, so many of them."""
    alpha = bl.Alpha(iterations=2) if result.method == "alpha-crown" else None
    try:
        bounds = net.bounds(bl.Box(low, up), method=result.method, alpha=alpha)
        return bounds.lower, bounds.upper, torch.zeros(len(low), dtype=torch.bool)
    except bl.UnsupportedOperator as error:
        result.refusal = f"{type(error).__name__}: {error}"
        left[0] = 0
    except bl.BoundlabError as error:
        result.refusal = f"{type(error).__name__}: {error}"
    if len(low) == 1 or left[0] <= 0:
        left[0] -= 1
        infinite = torch.full((len(low), 1), INF, dtype=low.dtype)
        return -infinite, infinite, torch.ones(len(low), dtype=torch.bool)
    half = len(low) // 2
    parts = [
        _ask(result, net, low[part], up[part], left)
        for part in (slice(None, half), slice(half, None))
    ]
    return tuple(torch.cat(pair) for pair in zip(*parts, strict=True))  # type: ignore[return-value]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="intervals for each chain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="chains whose text contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = [chain for chain in chains(options.seed) if options.only in str(chain)]
    results = [
        result for chain in found for result in _printed(attack(chain, options.count, options.seed))
    ]
    bad = [result for result in results if result.bad]
    print(
        f"{len(found)} chains, {len(results)} questions of {options.count} intervals: "
        f"{len(bad)} findings, {sum(r.refused > 0 for r in results)} with refusals"
    )
    print(f"findings by method: {dict(Counter(r.method for r in bad))}")
    alone = [r.chain.types for r in bad if len(r.chain.types) == 1 and not r.chain.work]
    by_types = Counter(" ".join(sorted({_short(t) for t in types})) for types in alone)
    print(f"findings by types: {dict(by_types)}")
    return 1 if bad else 0


def _printed(results: list[Result]) -> list[Result]:
    for result in results:
        if result.bad:
            print(result, flush=True)
    return results


if __name__ == "__main__":
    raise SystemExit(main())
