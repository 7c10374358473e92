"""Intervals at extreme arguments, and points of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.attacks.extreme_entries import INF, Entry


def ulp(x: Tensor) -> Tensor:
    kind = torch.finfo(x.dtype)
    return torch.maximum(x.abs() * kind.eps, torch.full_like(x, kind.smallest_normal * kind.eps))


def log_uniform(g: torch.Generator, shape: tuple[int, ...], low: float, high: float) -> Tensor:
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
    whole = log_uniform(g, shape, 0, 16).round()
    pick = lambda: table[torch.randint(len(table), shape, generator=g)]
    choices = [
        log_uniform(g, shape, -40, 38), log_uniform(g, shape, -3, 3), whole,
        whole * (math.pi / 2), 2.0 ** torch.randint(-149, 128, shape, generator=g),
        pick(), pick() * (1 + log_uniform(g, shape, -16, -1)),
    ]  # fmt: skip
    if math.isfinite(entry.low) or math.isfinite(entry.high):
        end = entry.low if math.isfinite(entry.low) else entry.high
        choices.append(end + log_uniform(g, shape, -16, 2))
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
    absolute = log_uniform(g, shape, -6, 3).abs()
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
