"""Properties with counterexamples by construction, of which no search may say that they hold.

python -m tests.verify.planted --count 1000 [--first SEED] [--seconds 0.3] [--ways inputs verify]

A threshold lies delta below the value of a row at a member of the region, as the model computes it
in its own precision. Networks, boxes, members, rows, clauses and cases are random by the seed.

Searches by themselves trust the slack of the query, which was measured elsewhere: a "gap" is a
proof of what is true in double precision where the model rounds more than that.
"""

from __future__ import annotations

import argparse
import collections
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.specs.formula import And, Formula, Linear, Or
from boundlab.verify.bound import Bounder
from boundlab.verify.inputs import METHODS, InputSplitting
from boundlab.verify.neurons import NeuronSplitting
from boundlab.verify.portfolio import Portfolio
from boundlab.verify.query import Query

OUTPUTS = 3


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


class Product(nn.Module):
    """Products of two layers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.left(x)) * self.right(x)


class Needle(nn.Module):
    """A network with a bump of ReLUs around a point, ``height`` high and about 1 / steep wide."""

    def __init__(self, body: nn.Module, at: Tensor, steep: float, height: float) -> None:
        super().__init__()
        self.body = body
        size = at.numel()
        self.sides = nn.Linear(size, 2 * size)
        self.sum = nn.Linear(2 * size, 1)
        self.height = height
        eye = steep * torch.eye(size)
        with torch.no_grad():
            self.sides.weight.copy_(torch.cat([eye, -eye]))
            self.sides.bias.copy_(self.sides.weight @ -at.reshape(-1))
            self.sum.weight.fill_(-1.0)
            self.sum.bias.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        bump = torch.relu(self.sum(torch.relu(self.sides(x))))
        return self.body(x) + self.height * bump


def layers(inputs: int, act: Callable[[], nn.Module], hidden: int = 8) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, hidden), act(), nn.Linear(hidden, 6), act(), nn.Linear(6, OUTPUTS)
    )


def pooled(size: int) -> nn.Module:
    side = nn.Sequential(nn.Unflatten(1, (1, size)), nn.Conv1d(1, 3, 2, padding=1), nn.ReLU())
    return nn.Sequential(side, nn.MaxPool1d(2), nn.Flatten(), nn.LazyLinear(OUTPUTS))


def residual(size: int) -> nn.Module:
    inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    return nn.Sequential(nn.Linear(size, 8), nn.ReLU(), Residual(inner), nn.Linear(8, OUTPUTS))


def product(size: int) -> nn.Module:
    return nn.Sequential(Product(size, 6), nn.ReLU(), nn.Linear(6, OUTPUTS))


def cancelling(size: int) -> nn.Module:
    """Large weights of both signs that nearly cancel."""
    found = nn.Sequential(nn.Linear(size, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, OUTPUTS))
    with torch.no_grad():
        found[2].weight[:4] *= 1e3
        found[2].bias[:4] += 100
        found[2].weight[4:] = found[2].weight[:4] * (1 + 1e-4 * torch.randn(4, 8))
        found[3].weight[:, 4:] = -found[3].weight[:, :4]
    return found


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "relu": lambda n: layers(n, nn.ReLU),
    "leaky": lambda n: layers(n, lambda: nn.LeakyReLU(0.1)),
    "tanh": lambda n: layers(n, nn.Tanh),
    "sigmoid": lambda n: layers(n, nn.Sigmoid),
    "gelu": lambda n: layers(n, nn.GELU),
    "sin": lambda n: layers(n, lambda: Apply(torch.sin)),
    "abs": lambda n: layers(n, lambda: Apply(torch.abs)),
    "softmax": lambda n: layers(n, lambda: nn.Softmax(1)),
    "product": product,
    "pooled": pooled,
    "residual": residual,
    "cancelling": cancelling,
}
BOXES = ("wide", "narrow", "tiny", "partly", "offset", "needle", "unit")
PLACES = ("inside", "border", "corner")
DELTAS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 0.0)


@dataclass(frozen=True, eq=False)
class Planted:
    """A property that a member of its region violates."""

    model: nn.Module
    prop: bl.Property
    point: Tensor
    what: str


def planted(seed: int, kind: str | None = None) -> Planted:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    size = draw.choice((1, 2, 3, 4, 6))
    kind = kind or draw.choice(list(NETWORKS))
    model = NETWORKS[kind](size)
    model(torch.zeros(2, size))
    scale = draw.choice((1.0, 1.0, 3.0))
    with torch.no_grad():
        for one in model.parameters():
            one *= scale
    shape, where = draw.choice(BOXES), draw.choice(PLACES)
    box = random_box(shape, size)
    point = member(box, where)
    if draw.random() < 0.3:
        steep = draw.choice((1e1, 1e3)) / float((box.upper - box.lower).amax().clamp(min=1e-3))
        model = Needle(model, point, steep, draw.choice((-1.0, 1.0)))
        kind += " with a needle"
    dtype = draw.choice((torch.float32, torch.float32, torch.float32, torch.float64))
    model = model.to(dtype).eval()
    delta = draw.choice(DELTAS)
    parts = [(box, clauses(model, point, delta, draw))]
    for _ in range(draw.choice((0, 0, 1, 2))):
        other = random_box(draw.choice(BOXES), size)
        parts.append((other, (And((Linear.output(0) <= -1e6, Linear.output(1) >= 1e6)),)))
    draw.shuffle(parts)
    prop = bl.Property.of_unsafe([(region, Stated(Or(tuple(one)))) for region, one in parts])
    what = f"{seed}: {kind} x{scale:g} {dtype}, {size} inputs, {shape}, {where}, delta {delta:g}"
    return Planted(model, prop, point, f"{what}, {[len(one) for _, one in parts]} clauses")


@dataclass(frozen=True)
class Stated:
    """An unsafe set that is known."""

    unsafe: Formula

    def formula(self, inputs: int, outputs: int) -> Formula:
        return self.unsafe

    def said(self, region: bl.Box) -> str:
        return str(self.unsafe)


def random_box(shape: str, size: int) -> bl.Box:
    centre = torch.randn(1, size)
    half = {
        "wide": 2.0 * torch.ones(1, size),
        "unit": 0.5 * torch.ones(1, size),
        "narrow": 1e-2 * torch.ones(1, size),
        "tiny": 1e-6 * torch.ones(1, size),
        "partly": torch.where(torch.rand(1, size) < 0.5, 0.0, 0.3),
        "offset": 1e-3 * torch.ones(1, size),
        "needle": torch.where(torch.rand(1, size) < 0.3, 1.0, 1e-5),
    }[shape]
    if shape == "offset":
        centre = 1000.0 * torch.sign(centre)
    return bl.Box(centre - half, centre + half)


def member(box: bl.Box, where: str) -> Tensor:
    share = torch.rand(box.lower.shape)
    if where == "border":
        share[0, 0] = 1.0
    elif where == "corner":
        share = share.round()
    x = box.lower + share * (box.upper - box.lower)
    x = torch.where(share == 1, box.upper, x)
    return torch.minimum(torch.maximum(x, box.lower), box.upper)


def clauses(
    model: nn.Module, point: Tensor, delta: float, draw: random.Random
) -> Sequence[Formula]:
    """Some clauses, one of which the point satisfies by delta in every row."""
    with torch.no_grad():
        y = model(point.to(next(model.parameters()).dtype))[0].double()
    x = point[0].double()
    rows = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        of_outputs = draw.choice((unit, spread))(len(y), draw)
        row: Linear = sum(
            (Linear.output(i) * c for i, c in enumerate(of_outputs) if c), Linear.number(0.0)
        )
        value = sum(c * float(v) for c, v in zip(of_outputs, y, strict=True))
        if draw.random() < 0.25:
            of_inputs = spread(len(x), draw)
            row = row + sum((Linear.input(i) * c for i, c in enumerate(of_inputs)), 0.0 * row)
            value += sum(c * float(v) for c, v in zip(of_inputs, x, strict=True))
        end = value + delta * draw.choice((1.0, max(abs(value), 1e-3)))
        strict = draw.random() < 0.5 and delta > 0
        rows.append(row < end if strict else row <= end + 1e-13 * abs(value))
    found: list[Formula] = [And(tuple(rows))]
    for _ in range(draw.choice((0, 0, 0, 2, 20))):
        found.append(Linear.output(draw.randrange(len(y))) >= 1e5)
    draw.shuffle(found)
    return found


def unit(size: int, draw: random.Random) -> list[float]:
    chosen, sign = draw.randrange(size), draw.choice((-1.0, 1.0))
    return [sign * (i == chosen) for i in range(size)]


def spread(size: int, draw: random.Random) -> list[float]:
    return [draw.gauss(0, 1) for _ in range(size)]


# -- searches --------------------------------------------------------------------------------------


def by_inputs(one: Planted, seconds: float, method: str | None, clips: bool) -> str:
    """Input splitting that sees no counterexample."""
    query = Query.of(one.model, one.prop)
    bounder = Bounder(query.net, query.rows)
    deadline = time.monotonic() + seconds
    search = InputSplitting(bounder, query.first_boxes(), lambda *_: False, deadline, method, clips)
    search.begin()
    search.run()
    assert search.counts.add_up(len(search.pool)), search.counts
    return "holds" if search.is_proved else "unknown"


def by_neurons(one: Planted, seconds: float) -> str:
    query = Query.of(one.model, one.prop)
    search = NeuronSplitting(query, time.monotonic() + seconds)
    search.begin(torch.arange(len(query.rows)))
    search.run()
    assert search.counts.add_up(search.open), search.counts
    return "holds" if search.is_proved else "unknown"


def by_verify(one: Planted, seconds: float) -> str:
    verdict = bl.verify(one.model, one.prop, timeout=seconds)
    found = verdict.counterexample
    assert (verdict.status == "violated") == (found is not None)
    if found is not None:
        assert any(bool(region.contains(found.inputs).all()) for region in one.prop.regions)
        y = one.model(found.inputs.to(next(one.model.parameters()).dtype))
        assert one.prop.violated(found.inputs, y).all()
    return verdict.status


class Blind(Portfolio):
    """A verification without an attack, which takes no input for a counterexample."""

    def attack(self) -> str:
        return "none"

    def confirm(self, point: Tensor, clause: int) -> bool:
        return False


def by_blind(one: Planted, seconds: float) -> str:
    found = Blind(one.model, one.prop, time.monotonic() + seconds)
    found.slice = seconds / 8  # so that all stages have their turn
    found.run()
    return found.verdict().status


def is_gap(one: Planted) -> bool:
    """Whether the model rounds more at the planted point than the slack allows."""
    query = Query.of(one.model, one.prop)
    rows, every = query.rows, torch.arange(len(query.rows))
    x = one.point.expand(len(every), -1)
    moved = rows.moved(query.rounding(x, query.target(x)), every)
    return bool((moved > rows.slack).any())


def search(one: Planted, way: str, seconds: float, seed: int) -> str:
    draw = random.Random(seed)
    if way == "inputs":
        return by_inputs(one, seconds, draw.choice((None, *METHODS)), draw.random() < 0.7)
    return {"neurons": by_neurons, "blind": by_blind, "verify": by_verify}[way](one, seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--minutes", type=float, default=1e6, help="end after so many")
    parser.add_argument("--kind", choices=list(NETWORKS))
    parser.add_argument("--ways", nargs="+", default=["inputs", "neurons", "blind", "verify"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    totals: collections.Counter[tuple[str, str]] = collections.Counter()
    end = time.monotonic() + 60 * arguments.minutes
    for seed in range(arguments.first, arguments.first + arguments.count):
        if time.monotonic() > end:
            break
        one = planted(seed, arguments.kind)
        x = one.point.to(next(one.model.parameters()).dtype)
        if not bool(one.prop.violated(x, one.model(x)).all()):
            totals["planting", "failed"] += 1
            continue
        for way in arguments.ways:
            try:
                status = search(one, way, arguments.seconds, seed)
            except Exception as error:  # to be looked at, not to end the run
                status = f"{type(error).__name__}: {str(error)[:80]}"
                print("ERROR", way, one.what, status, flush=True)
            if status == "holds" and way in ("inputs", "neurons") and is_gap(one):
                status = "gap"
            totals[way, status] += 1
            if status in ("holds", "gap"):
                print("WRONG" if status == "holds" else status, way, one.what, flush=True)
    for (way, status), count in sorted(totals.items()):
        print(f"{way}: {count} {status}")


if __name__ == "__main__":
    main()
