"""The rounding errors of torch's elementwise functions in float32, measured.

    python -m benchmarks.ulps --sample 22                  some millions of numbers: a minute
    python -m benchmarks.ulps --exponents 31               and all of 2^-24 <= |x| < 2^7
    python -m benchmarks.ulps --full --functions exp log   and all others: minutes a function
    python -m benchmarks.ulps --double                     some numbers of float64
    python -m benchmarks.ulps --compiled                   a sample, by torch.compile

Every float32 number x goes through a function twice: in contiguous tensors, whose kernels are
vectorised, and in tensors with strides, whose elements many kernels compute one by one. Its value
is compared with y, the same function of the same number in float64, at the worst places with that
of mpmath. With u = 2^-24 the largest error is written down in three units, each a model of errors:

    y           u |y|
    y and x     u (|y| + |x|)
    y and 1     u (|y| + 1)

The first is counted where |y| >= 2^-126, the least normal number; where it is smaller the absolute
error counts, in units of 2^-126. A result of half an ulp, correctly rounded, has at most 1 u |y|; a
library that promises one ulp allows 2 u |y|. With ``ATEN_CPU_CAPABILITY=avx2`` or ``default`` torch
takes other kernels.

Writes results/ulps.json, and goes on from what is there: nothing is measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from mpmath import mp, mpf
from torch import Tensor

from benchmarks import ulps_double
from benchmarks.timing import RESULTS
from benchmarks.ulps_functions import FUNCTIONS, Function

CHUNK = 1 << 15
BLOCK = 1 << 23
"""The float32 numbers of one sign and exponent."""
SAVE_EVERY = 8
NEAR = (0, *(sign * k for k in range(1, 7) for sign in (1, -1)), *range(-7, -25, -1))
"""Exponents in the order in which they are measured, before all others: from 2^0 outwards until
2^-24 <= |x| < 2^7."""
U = 2.0**-24
TINY = 2.0**-126
LARGEST = torch.finfo(torch.float32).max
SMALL = -100
"""Values below 2^SMALL are counted binade by binade, for what underflow does to them."""
LEAST = -150
FLOOR = TINY / U
"""Of |y| + |x|: below it 2^-126 is the unit."""
MODELS = ("y", "y and x", "y and 1")
SINGLE = 1 << 12
"""How many numbers are also computed alone."""
DIGITS = 160
"""Bits of mpmath."""

Row = dict[str, Any]

# -- numbers ---------------------------------------------------------------------------------------


def exponents() -> list[int]:
    """All, in the order in which they are measured; -127 is that of denormal numbers, 128 that of
    infinities."""
    return [*NEAR, *range(7, 129), *range(-25, -128, -1)]


def blocks() -> list[int]:
    """Exponents and signs, as the first nine bits of a number."""
    return [sign * 256 + exponent + 127 for exponent in exponents() for sign in (0, 1)]


def block_chunks(block: int) -> Iterator[Tensor]:
    """The numbers with these first nine bits, without NaN."""
    start = block * BLOCK
    if start >= 1 << 31:
        start -= 1 << 32
    mantissas = torch.arange(CHUNK, dtype=torch.int32)
    for k in range(0, BLOCK, CHUNK):
        x = (mantissas + (start + k)).view(torch.float32)
        if block % 256 < 255:
            yield x
        elif k == 0:
            yield x[:1]


def landmarks() -> Tensor:
    """Where functions have roots, turns, poles and thresholds."""
    steps = torch.arange(-480, 481, dtype=torch.float64)
    quarters = steps / 4
    turns = steps * (math.pi / 4)
    powers = 2.0 ** torch.arange(-30, 31, dtype=torch.float64)
    near_one = torch.cat([1 - powers[:31], 1 + powers[:31]])
    others = torch.tensor(
        [1.46163214496836234, 88.722839, -87.336544, -103.972, 126.99, 89.415, 10.054, 13.2, 18.71]
    )
    return torch.cat([quarters, turns, powers, -powers, near_one, -near_one, others])


def neighbours(points: Tensor, radius: int) -> Tensor:
    """The float32 numbers within some steps of the given ones."""
    bits = points.float().view(torch.int32)
    around = torch.arange(-radius, radius + 1, dtype=torch.int32)
    return (bits[:, None] + around).flatten().view(torch.float32)


def sampled(bits: int) -> Tensor:
    """Some 2^bits numbers: as many with each sign and exponent, mantissas at random, and those at
    either end; a quarter as many from [-110, 110]; all near the landmarks."""
    random = torch.Generator().manual_seed(bits)
    each = (1 << bits) // 512
    inside = torch.randint(0, 1 << 23, (512, each), generator=random)
    ends = torch.cat([torch.arange(64), (1 << 23) - 1 - torch.arange(64)]).expand(512, 128)
    mantissas = torch.cat([inside, ends], dim=1)
    all_bits = (torch.arange(512)[:, None] << 23) + mantissas - (1 << 31)
    numbers = all_bits.flatten().to(torch.int32).view(torch.float32)
    even = torch.rand(1 << (bits - 2), generator=random) * 220 - 110
    found = torch.cat([numbers, even, neighbours(landmarks(), 64)])
    return found[~torch.isnan(found)]


# -- the largest errors ----------------------------------------------------------------------------


def least_size(x: Tensor) -> float:
    """The least absolute value, or 0 if there are both signs."""
    low, high = (end.item() for end in x.aminmax())
    if low < 0 < high:
        return 0.0
    return min(abs(low), abs(high))


class Worst:
    """The largest errors of one way to execute a function."""

    def __init__(self, found: Row | None = None) -> None:
        self.models: Row = {}
        self.binades: dict[str, list[float]] = {}
        self.strange: Row = {}
        if found is not None:
            self.models, self.binades = found["models"], found["binades"]
            self.strange = found["strange"]

    def record(self) -> Row:
        return {"models": self.models, "binades": self.binades, "strange": self.strange}

    def study(self, x: Tensor, found: Tensor, exact: Tensor) -> None:
        """Take in the results at some numbers, all in float64."""
        difference = found - exact
        low, high = (end.item() for end in difference.aminmax())
        if not math.isfinite(high - low):  # NaN is both ends
            self._strange(x, found, exact)
            use = torch.isfinite(exact) & torch.isfinite(found)
            if not use.any():
                return
            x, found, exact, difference = x[use], found[use], exact[use], difference[use]
            low, high = (end.item() for end in difference.aminmax())
        largest = max(-low, high)
        size, least = least_size(exact), least_size(x)
        if size < 2.0**SMALL:
            values = exact.abs()
            small = values < 2.0**SMALL
            self._count_binades(difference[small].abs(), values[small])
        units = {
            "y": (max(size, 2.0**SMALL), lambda: exact.abs().clamp_(min=2.0**SMALL)),
            "y and x": (
                max(size + least, FLOOR),
                lambda: (exact.abs() + x.abs()).clamp_(min=FLOOR),
            ),
            "y and 1": (size + 1, lambda: exact.abs() + 1),
        }
        for model, (smallest, unit) in units.items():
            # most chunks need no division to see that it is less than what was found elsewhere
            if largest > self.best(model) * U * smallest:
                self._keep(model, difference.abs() / unit(), (x, found, exact))

    def best(self, model: str) -> float:
        return self.models.get(model, {"units": -1.0})["units"]

    def _keep(self, model: str, errors: Tensor, places: tuple[Tensor, Tensor, Tensor]) -> None:
        """Write down the largest of the errors, if it is larger than what was found elsewhere."""
        if model == "y":
            errors[places[2].abs() < 2.0**SMALL] = 0
        at = errors.argmax()
        units = errors[at].item() / U
        if units > self.best(model):
            keys = "x", "result", "exact"
            values = {key: place[at].item() for key, place in zip(keys, places, strict=True)}
            self.models[model] = {"units": units, **values}

    def _count_binades(self, error: Tensor, size: Tensor) -> None:
        """The largest absolute error, in units of 2^-126, and relative one, in units of u, for
        every binade of small values."""
        exponent = (torch.frexp(size).exponent.long() - 1).clamp(min=LEAST)
        exponent[size == 0] = LEAST
        absolute = torch.zeros(SMALL - LEAST, dtype=torch.float64)
        absolute.scatter_reduce_(0, exponent - LEAST, error / TINY, "amax")
        relative = torch.zeros_like(absolute)
        normal = size >= TINY
        relative.scatter_reduce_(
            0, exponent[normal] - LEAST, error[normal] / size[normal] / U, "amax"
        )
        for k in exponent.unique().tolist():
            old = self.binades.get(str(k), [0.0, 0.0])
            new = [absolute[k - LEAST].item(), relative[k - LEAST].item()]
            self.binades[str(k)] = [max(pair) for pair in zip(old, new, strict=True)]

    def _strange(self, x: Tensor, found: Tensor, exact: Tensor) -> None:
        """Where the result is not finite although the value is a float32 number, is NaN although
        there is a value, or is finite although the value is infinite."""
        kinds = {
            "overflows": torch.isinf(found) & (exact.abs() <= LARGEST),
            "nan": torch.isnan(found) & ~torch.isnan(exact),
            "finite": torch.isfinite(found) & torch.isinf(exact),
            "sign": torch.isinf(found) & (exact.abs() > LARGEST) & (found.sign() != exact.sign()),
        }
        for kind, where in kinds.items():
            for side, half in (("x < 0", where & (x < 0)), ("x >= 0", where & (x >= 0))):
                if half.any():
                    self._list(f"{kind}, {side}", x[half], found[half], exact[half])

    def _list(self, kind: str, x: Tensor, found: Tensor, exact: Tensor) -> None:
        old = self.strange.setdefault(kind, {"count": 0})
        old["count"] += x.numel()
        for end, at in (("lowest", x.argmin()), ("highest", x.argmax())):
            place = {"x": x[at].item(), "result": found[at].item(), "exact": exact[at].item()}
            sign = {"lowest": 1, "highest": -1}[end]
            if end not in old or sign * place["x"] < sign * old[end]["x"]:
                old[end] = place


def strided(x: Tensor) -> Tensor:
    """The same numbers, every other one of a longer tensor."""
    wide = torch.empty(2 * x.numel(), dtype=x.dtype)
    wide[::2] = x
    return wide[::2]


def equal_bits(a: Tensor, b: Tensor) -> Tensor:
    return (a.view(torch.int32) == b.view(torch.int32)) | (torch.isnan(a) & torch.isnan(b))


def take_in(function: Function, x: Tensor, worst: dict[str, Worst]) -> int:
    """Both ways at some numbers; how many results of theirs differ."""
    if function.positive and not (x[0] > 0 and (x > 0).all()):
        x = x[x > 0]
        if not x.numel():
            return 0
    wide = x.double()
    exact = function.reference(wide)
    vectorised, scalar = function.op(x), function.op(strided(x)).contiguous()
    worst["vectorised"].study(wide, vectorised.double(), exact)
    if torch.equal(vectorised.view(torch.int32), scalar.view(torch.int32)):
        return 0
    other = ~equal_bits(scalar, vectorised)
    if other.any():
        worst["scalar"].study(wide[other], scalar[other].double(), exact[other])
    return int(other.sum())


# -- one function ----------------------------------------------------------------------------------


def measure(function: Function, chunks: Iterable[Tensor], row: Row) -> None:
    """Take some numbers into a row."""
    worst = {path: Worst(row.get(path)) for path in ("vectorised", "scalar")}
    began = time.perf_counter()
    for x in chunks:
        row["differ"] += take_in(function, x, worst)
        row["numbers"] += x.numel()
    row |= {path: worst[path].record() for path in worst}
    row["seconds"] = round(row["seconds"] + time.perf_counter() - began, 1)


def begun(bits: int) -> Row:
    """The row of a sample that is not measured yet."""
    return {"sample": bits, "blocks": 0, "seconds": 0.0, "numbers": 0, "differ": 0}


def mode(row: Row) -> str:
    """What was measured of a function."""
    if row["blocks"] == 512:
        return "full"
    if row["blocks"] < 2:
        return f"sample {row['sample']}"
    done = exponents()[: row["blocks"] // 2]
    return f"2^{min(done)} to 2^{max(done) + 1}"


def alone(function: Function, numbers: Tensor) -> Row:
    """How many results of single elements are neither those of vectors nor those of strides."""
    x = numbers[torch.randperm(numbers.numel(), generator=torch.Generator().manual_seed(0))]
    x = x[:SINGLE]
    single = torch.cat([function.op(x[k : k + 1]) for k in range(x.numel())])
    vectorised, scalar = function.op(x), function.op(strided(x)).contiguous()
    return {
        "numbers": x.numel(),
        "not as vectorised": int((~equal_bits(single, vectorised)).sum()),
        "as neither": int((~equal_bits(single, vectorised) & ~equal_bits(single, scalar)).sum()),
    }


def at_the_ends(function: Function) -> Row:
    """The values at infinities and zeros."""
    x = torch.tensor([-math.inf, -0.0, 0.0, math.inf])
    keys = ("-inf", "-0", "0", "inf")
    return dict(zip(keys, map(str, function.op(x).tolist()), strict=True))


def checked(name: str, function: Function, row: Row) -> None:
    """Measure the worst errors again, against mpmath."""
    if name == "div":  # float64 is exact enough, and mpmath does not see the divisor
        return
    for path in ("vectorised", "scalar"):
        for model, place in row[path]["models"].items():
            x, result = mpf(place["x"]), mpf(place["result"])
            exact = function.exact(x)
            size = {"y": abs(exact), "y and x": abs(exact) + abs(x), "y and 1": abs(exact) + 1}
            error = abs(result - exact)
            if error:
                place["checked"] = float(error / max(size[model], mpf(2) ** -150) / mpf(U))
            else:
                place["checked"] = 0.0


# -- what to make of it ----------------------------------------------------------------------------

SMALL_CONSTANT = 16.0


def combined(row: Row) -> tuple[dict[str, float], dict[int, tuple[float, float]]]:
    """The worst of both ways: of the models, and of each binade of small values."""
    paths = row["vectorised"], row["scalar"]
    models = {
        model: max(path["models"].get(model, {"units": 0.0})["units"] for path in paths)
        for model in MODELS
    }
    binades: dict[int, tuple[float, float]] = {}
    for path in paths:
        for key, (absolute, relative) in path["binades"].items():
            old = binades.get(int(key), (0.0, 0.0))
            binades[int(key)] = max(old[0], absolute), max(old[1], relative)
    return models, binades


def underflow(largest: float, binades: dict[int, tuple[float, float]]) -> tuple[int, float, float]:
    """From which binade on relative errors are as elsewhere, at most a quarter more; the largest
    absolute error below it in units of 2^-126; the largest relative one from there on."""
    allowed = max(1.25 * largest, 1.0)
    bad = [k for k, (_, relative) in binades.items() if k >= -126 and relative > allowed]
    start = max(bad, default=-127) + 1
    absolute = max((value for k, (value, _) in binades.items() if k < start), default=0.0)
    above = max((value for k, (_, value) in binades.items() if k >= start), default=0.0)
    return start, absolute, max(largest, above)


def summary(row: Row) -> Row:
    """The model that fits, its constant, and what underflow costs."""
    models, binades = combined(row)
    start, absolute, relative = underflow(models["y"], binades)
    found: Row = {
        "y": max([models["y"], *(value for k, (_, value) in binades.items() if k >= -126)]),
        "below 2^-126": max((value for k, (value, _) in binades.items() if k < -126), default=0.0),
        "y without underflow": relative,
        "underflow below 2^": start,
        "underflow": absolute,
        "y and x": models["y and x"],
        "y and 1": models["y and 1"],
    }
    constants = {"y": relative, "y and x": models["y and x"], "y and 1": models["y and 1"]}
    fits = [model for model in MODELS if constants[model] <= SMALL_CONSTANT]
    found["model"] = (fits or [min(constants, key=lambda model: constants[model])])[0]
    found["constant"] = constants[found["model"]]
    return found


def line(name: str, row: Row) -> str:
    found = row["summary"]
    strange = sorted(row["vectorised"]["strange"] | row["scalar"]["strange"])
    return (
        f"{name:18s} {mode(row):14s} {found['model']:8s} {found['constant']:10.4g}  "
        f"y {found['y']:9.4g} (from 2^{found['underflow below 2^']} on "
        f"{found['y without underflow']:9.4g}, below {found['underflow']:8.3g} tiny)  "
        f"yx {found['y and x']:9.4g}  y1 {found['y and 1']:9.4g}  "
        f"{row['seconds']:6.1f} s  {', '.join(strange)}"
    )


# -- the command -----------------------------------------------------------------------------------


def load(path: Path) -> Row:
    if path.exists():
        return json.loads(path.read_text())
    return {}


def text(everything: Row) -> str:
    """JSON, with a line for each row."""
    parts = []
    for key, value in everything.items():
        body = json.dumps(value)
        if isinstance(value, dict):
            rows = [f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in value.items()]
            body = "{\n" + ",\n".join(rows) + "\n }"
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write(path: Path, capability: str, name: str, row: Row) -> None:
    """Replace one row of the file."""
    everything = load(path)
    everything["torch"] = torch.__version__
    everything.setdefault(capability, {})[name] = row
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text(everything))
    os.replace(partial, path)


def finish(name: str, row: Row, path: Path, suffix: str = "") -> None:
    """Sum a row up, and write it down."""
    row["summary"] = summary(row)
    checked(name, FUNCTIONS[name], row)
    row["mode"] = mode(row)
    write(path, torch.backends.cpu.get_cpu_capability() + suffix, name, row)


def run(name: str, bits: int, wanted: int, path: Path) -> None:
    """Measure a function up to some number of blocks, and write down how far it came."""
    function, capability = FUNCTIONS[name], torch.backends.cpu.get_cpu_capability()
    row = load(path).get(capability, {}).get(name)
    if row is None or (not row["blocks"] and row["sample"] < bits):
        row, numbers = begun(bits), sampled(bits)
        measure(function, numbers.split(CHUNK), row)
        row |= {"alone": alone(function, numbers), "ends": at_the_ends(function)}
        finish(name, row, path)
    elif row["blocks"] >= wanted:
        return
    order = blocks()
    while row["blocks"] < wanted:
        until = min(wanted, row["blocks"] + SAVE_EVERY)
        for block in order[row["blocks"] : until]:
            measure(function, block_chunks(block), row)
        row["blocks"] = until
        finish(name, row, path)
    print(line(name, row), flush=True)


def compiled(name: str, bits: int, path: Path) -> None:
    """Measure what torch.compile makes of a function, at a sample."""
    function = FUNCTIONS[name]
    numbers = sampled(bits)
    if function.positive:
        numbers = numbers[numbers > 0]
    # of one shape, to be compiled once
    missing = -numbers.numel() % CHUNK
    numbers = torch.cat([numbers, numbers[-1:].expand(missing)])
    function = replace(function, op=torch.compile(function.op, dynamic=False))
    row = begun(bits)
    measure(function, numbers.split(CHUNK), row)
    finish(name, row, path, " compiled")
    print(line(name, row), flush=True)


def double(name: str, path: Path) -> None:
    """Measure a function in float64."""
    row = ulps_double.measure(name)
    write(path, f"{torch.backends.cpu.get_cpu_capability()} float64", name, row)
    print(ulps_double.line(name, row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--functions", nargs="*", choices=[*FUNCTIONS], metavar="NAME")
    parser.add_argument("--sample", type=int, default=22, metavar="BITS", help="about 2^BITS")
    parser.add_argument("--exponents", type=int, default=0, metavar="N", help="and N exponents")
    parser.add_argument("--full", action="store_true", help="and all 2^32 numbers")
    parser.add_argument("--compiled", action="store_true", help="a sample, by torch.compile")
    parser.add_argument("--double", action="store_true", help="float64 instead, at some numbers")
    parser.add_argument("--output", type=Path, default=RESULTS / "ulps.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    mp.prec = DIGITS
    wanted = 2 * arguments.exponents
    if arguments.full:
        wanted = 512
    for name in arguments.functions or FUNCTIONS:
        if arguments.double:
            double(name, arguments.output)
        elif arguments.compiled:
            compiled(name, arguments.sample, arguments.output)
        else:
            run(name, arguments.sample, wanted, arguments.output)


if __name__ == "__main__":
    main()
