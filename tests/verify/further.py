"""More planted properties (see :mod:`tests.verify.planted`), and stages that are asked one by one.

python -m tests.verify.further --count 1000 [--first SEED] [--seconds 0.5] [--kinds deep cell]

Networks that need tighter intervals and leaves by a solver, layouts whose samples do not come
first, weights of many magnitudes, jumps; boxes far away or without width; clauses that are
repeated, trivially false, or nearly true, in several cases over the same box.
"""

from __future__ import annotations

import argparse
import collections
import math
import random
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.specs.formula import And, Formula, Linear, Or
from boundlab.verify.domains import Domains
from boundlab.verify.exact import ExactSearch
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.query import Query
from tests.verify.planted import (
    DELTAS,
    OUTPUTS,
    PLACES,
    Apply,
    Planted,
    Stated,
    by_blind,
    by_inputs,
    by_neurons,
    by_verify,
    clauses,
    is_gap,
    layers,
    member,
    random_box,
    residual,
)

BOXES = ("wide", "unit", "narrow", "tiny", "partly", "far", "point", "sliver")


def deep(size: int) -> nn.Module:
    """Narrow and deep, as large behind as in front."""
    found: list[nn.Module] = [nn.Linear(size, 5)]
    for _ in range(5):
        found += [nn.ReLU(), nn.Linear(5, 5)]
    found += [nn.ReLU(), nn.Linear(5, OUTPUTS)]
    for layer in found[::2]:
        assert isinstance(layer, nn.Linear)
        nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.in_features))
    return nn.Sequential(*found)


def magnitudes(size: int) -> nn.Module:
    """ReLUs whose weights are of many magnitudes, which make up for each other."""
    found = layers(size, nn.ReLU)
    power = float(torch.empty(()).uniform_(-11, 11))
    with torch.no_grad():
        found[0].weight *= 10**power
        found[0].bias *= 10**power
        found[2].weight *= 10**-power
        found[4].weight *= 10 ** (3 * torch.randn(OUTPUTS, 6)).clamp(-9, 2)
    return found


class Cell(nn.Module):
    """A recurrent cell, whose samples lie in dimension 1."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.state = nn.Linear(4, 3), nn.Linear(4, 3)
        self.last = nn.Linear(3, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        steps = x.unsqueeze(2).transpose(0, 1)  # (steps, samples, 1)
        hidden = torch.zeros_like(x[:, :1]).expand(-1, 3)
        for step in range(x.shape[1]):
            both = torch.cat([steps[step], hidden], 1)
            gate = torch.sigmoid(self.gate(both))
            hidden = gate * hidden + (1 - gate) * torch.tanh(self.state(both))
        return self.last(hidden)


class Turned(nn.Module):
    """ReLUs on values whose samples come last."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(7, size))
        self.second = nn.Parameter(torch.randn(6, 7) / 2)
        self.last = nn.Linear(6, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first @ x.T)
        h = torch.relu(self.second @ h - 0.3)
        return self.last(h.T)


class Apart(nn.Module):
    """The first input goes through a branch of its own, whose terms cancel."""

    def __init__(self, size: int, act: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.own = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 2))
        self.rest = layers(size, nn.ReLU)
        self.last = nn.Linear(2 + OUTPUTS, OUTPUTS)
        self.act = act
        with torch.no_grad():
            self.own[2].weight *= 1e4

    def forward(self, x: Tensor) -> Tensor:
        own = self.own(x[:, :1])
        return self.last(torch.cat([self.act(own), self.rest(x)], 1))


class Attention(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(1, 3) for _ in range(3))
        self.last = nn.Linear(3 * size, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        h = x.unsqueeze(2)
        weights = torch.softmax(self.q(h) @ self.k(h).transpose(1, 2), 2)
        return self.last((weights @ self.v(h)).flatten(1))


def images(size: int) -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 1, size)),
        nn.Conv2d(1, 4, (1, 2), padding=(1, 1)),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d((3, 2)),
        nn.Flatten(),
        nn.LazyLinear(OUTPUTS),
    )


def convolved(size: int) -> nn.Module:
    first = nn.Sequential(nn.Unflatten(1, (1, size)), nn.Conv1d(1, 3, 2, padding=1), nn.ReLU())
    second = nn.Sequential(nn.Conv1d(3, 3, 3, padding=1), nn.ReLU(), nn.Flatten())
    return nn.Sequential(first, second, nn.LazyLinear(OUTPUTS))


def acting(act: Callable[[Tensor], Tensor]) -> Callable[[int], nn.Module]:
    return lambda size: layers(size, lambda: Apply(act))


FURTHER: dict[str, Callable[[int], nn.Module]] = {
    "deep": deep,
    "deeper": lambda n: nn.Sequential(deep(n), nn.ReLU(), deep(OUTPUTS)),
    "magnitudes": magnitudes,
    "cell": lambda n: Cell(),
    "turned": Turned,
    "apart": lambda n: Apart(n, torch.relu),
    "apart tanh": lambda n: Apart(n, torch.tanh),
    "apart sin": lambda n: Apart(n, torch.sin),
    "attention": Attention,
    "images": images,
    "convolved": convolved,
    "residual": residual,
    "normed": lambda n: nn.Sequential(nn.Linear(n, 6), nn.LayerNorm(6), layers(6, nn.ReLU)),
    "maximum": acting(lambda h: torch.maximum(h, 0.5 * h.flip(1) - 0.1)),
    "where": acting(lambda h: torch.where(h > 0.1, h * 0.5, h.abs())),
    "jump": acting(lambda h: h + 0.2 * (h > 0.1).to(h.dtype)),
    "sign": acting(lambda h: 0.3 * torch.sign(h) + h),
    "floor": acting(lambda h: torch.floor(3 * h) / 3),
    "clamp": acting(lambda h: h.clamp(-0.3, 0.4)),
    "relu6": lambda n: layers(n, nn.ReLU6),
    "silu": lambda n: layers(n, nn.SiLU),
    "softplus": lambda n: layers(n, nn.Softplus),
    "elu": lambda n: layers(n, nn.ELU),
    "squares": acting(lambda h: 0.3 * h**2),
    "division": acting(lambda h: h / (1.0 + h.abs())),
    "exponents": acting(lambda h: torch.exp(h.clamp(max=2.0)) - torch.sqrt(h.abs() + 0.01)),
    "cosine": acting(lambda h: torch.cos(3 * h)),
}


def boxed(shape: str, size: int) -> bl.Box:
    centre = torch.randn(1, size)
    if shape == "far":
        half = 10.0 ** torch.randint(-1, 3, (1, size))
        return bl.Box(1e6 * centre.sign() - half, 1e6 * centre.sign() + half)
    if shape == "point":
        return bl.Box(centre, centre)
    if shape == "sliver":  # a few numbers wide, or not at all
        wide = torch.rand(1, size) < 0.5
        ends = centre + torch.finfo(torch.float32).eps * torch.randint(0, 3, (1, size))
        lower, upper = torch.minimum(centre, ends), torch.maximum(centre, ends)
        return bl.Box(torch.where(wide, lower - 1, lower), torch.where(wide, upper + 1, upper))
    return random_box(shape, size)


def more_clauses(found: list[Formula], draw: random.Random) -> list[Formula]:
    """With clauses that are repeated, false everywhere, or contradict themselves."""
    extra: list[Formula] = []
    y = Linear.output
    for _ in range(draw.choice((0, 1, 3))):
        extra.append(draw.choice(found))
        extra.append(And((y(0) >= 1e7, y(0) <= -1e7)))
        extra.append(And((y(1) - y(1) >= 1.0, y(0) <= 1e9)))
        extra.append(And((Linear.input(0) >= 1e9, y(2) <= 1e9)))
    found = found + extra
    draw.shuffle(found)
    return found


def planted_further(seed: int, kind: str | None = None) -> Planted:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    size = draw.choice((1, 2, 3, 4, 6))
    kind = kind or draw.choice(list(FURTHER))
    model = FURTHER[kind](size)
    model.eval()(torch.zeros(2, size))
    shape, where = draw.choice(BOXES), draw.choice(PLACES)
    box = boxed(shape, size)
    if shape == "far":
        model = nn.Sequential(Apply(lambda x: x / 100), model)
    dtype = draw.choice((torch.float32, torch.float64))
    model = model.to(dtype).eval()
    box = draw.choice((box, bl.Box(box.lower.double(), box.upper.double())))
    point = best_of(model, box, where)
    delta = draw.choice(DELTAS)
    parts = [(box, more_clauses(list(clauses(model, point, delta, draw)), draw))]
    for _ in range(draw.choice((0, 0, 1, 3))):
        other = draw.choice((box, boxed(draw.choice(BOXES), size)))
        nothing: list[Formula] = [And((Linear.output(0) <= -1e9, Linear.output(1) >= 1e9))]
        parts.append((other, more_clauses(nothing, draw)))
    draw.shuffle(parts)
    prop = bl.Property.of_unsafe([(region, Stated(Or(tuple(one)))) for region, one in parts])
    what = f"{seed}: {kind} {dtype}, {size} inputs, {shape} {box.lower.dtype}, {where}"
    return Planted(model, prop, point, f"{what}, delta {delta:g}, {[len(p) for _, p in parts]}")


@torch.no_grad()
def best_of(model: nn.Module, box: bl.Box, where: str) -> Tensor:
    """The one of many members with the least first output, so that few are unsafe; or any."""
    points = torch.cat([member(box, where) for _ in range(64)])
    dtype = next(model.parameters()).dtype
    values = torch.cat([model(one[None].to(dtype))[:, 0] for one in points])
    return points[values.argmin()][None]


def by_stages(one: Planted, seconds: float) -> str:
    """Neuron splitting, tightening and the solver in turn, which see no counterexample."""
    query = Query.of(one.model, one.prop)
    search = NeuronSplitting(query, time.monotonic() + seconds)
    search.begin(torch.arange(len(query.rows)))
    for _ in range(2):
        search.run(seconds / 8)
        assert search.counts.add_up(search.open), search.counts
        search.tighten(seconds / 4)
        assert search.counts.add_up(search.open), search.counts
    if search.is_proved:
        return "holds"
    return by_solver(query, search, seconds)


def by_solver(query: Query, search: NeuronSplitting, seconds: float) -> str:
    """What is left open, first as whole clauses and then as domains."""
    if search.root is None or len(search.not_bounded):
        return "unknown"
    exact = ExactSearch(query, search.problem, search.root)
    whole = search.root.take(search.open_clauses)
    if not exact.can(whole):
        return "not encoded"
    count = len(search.open_clauses)
    if all(exact.decide(whole, k, seconds / 4)[0] for k in range(count)):
        return "holds"
    leaves = Domains.join([*search.chunks, *search.stuck])
    end = time.monotonic() + seconds
    for number in range(len(leaves)):
        if time.monotonic() > end or not exact.decide(leaves.state, number, seconds / 4)[0]:
            return "unknown"
    return "holds"


WAYS: dict[str, Callable[[Planted, float], str]] = {
    "stages": by_stages,
    "inputs": lambda one, seconds: by_inputs(one, seconds, None, True),
    "neurons": by_neurons,
    "blind": by_blind,
    "verify": by_verify,
}


def status_of(one: Planted, way: str, seconds: float) -> str:
    status = WAYS[way](one, seconds)
    if status == "holds" and way not in ("blind", "verify") and is_gap(one):
        return "gap"
    return status


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--minutes", type=float, default=1e6, help="end after so many")
    parser.add_argument("--kinds", nargs="+", choices=list(FURTHER), default=list(FURTHER))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=["stages", "blind"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    totals: collections.Counter[tuple[str, str, str]] = collections.Counter()
    end = time.monotonic() + 60 * arguments.minutes
    for seed in range(arguments.first, arguments.first + arguments.count):
        if time.monotonic() > end:
            break
        kind = arguments.kinds[seed % len(arguments.kinds)]
        one = planted_further(seed, kind)
        x = one.point.to(next(one.model.parameters()).dtype)
        if not bool(one.prop.violated(one.point, one.model(x)).all()):
            totals[kind, "planting", "failed"] += 1
            continue
        for way in arguments.ways:
            try:
                status = status_of(one, way, arguments.seconds)
            except Exception as error:  # to be looked at, not to end the run
                status = type(error).__name__
                print("ERROR", way, one.what, status, str(error)[:200], flush=True)
            totals[kind, way, status] += 1
            if status in ("holds", "gap"):
                print("WRONG" if status == "holds" else status, way, one.what, flush=True)
    for (kind, way, status), count in sorted(totals.items()):
        print(f"{kind}, {way}: {count} {status}")


if __name__ == "__main__":
    main()
