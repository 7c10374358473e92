"""Tens of thousands of random graphs: ``python -m tests.fuzz [count] [first seed]``. Stops at
nothing, reports all failures."""

from __future__ import annotations

import random
import sys
import traceback

import torch
from rich.progress import track

import boundlab as bl
from tests.helpers.contract import METHODS
from tests.random_graphs import NAMES, attack, random_program, random_region


def attack_seed(seed: int) -> bool:
    """One random graph, region and type, attacked by every method (one in eight by alpha-crown
    too). Returns whether only single precision failed."""
    rng = random.Random(seed)
    dtype = rng.choice([torch.float32, torch.float64])
    program = random_program(rng)
    state = rng.getstate()

    def region(kind: torch.dtype) -> bl.Region:
        rng.setstate(state)
        return random_region(rng, kind)

    # which is slow
    methods = (
        METHODS if seed % 8 == 0 else tuple(method for method in METHODS if method != "alpha-crown")
    )
    return attack(program, region, dtype, seed=seed, methods=methods)


def main(count: int = 20000, first: int = 0) -> int:
    torch.set_num_threads(1)
    failures, rounding = [], 0
    for seed in track(
        range(first, first + count), "random graphs", disable=not sys.stderr.isatty()
    ):
        try:
            rounding += attack_seed(seed)
        except Exception as error:
            names = [NAMES[op % len(NAMES)] for op, *_ in _program(seed)]
            failures.append(seed)
            print(f"seed {seed} ({', '.join(names)}): {type(error).__name__}: {error}", flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exc()
    print(
        f"{count} graphs from seed {first}: {len(failures)} failures {failures[:20]}, "
        f"{rounding} of rounding in single precision only"
    )
    return 1 if failures else 0


def _program(seed: int) -> list[tuple[int, int, int, int]]:
    rng = random.Random(seed)
    rng.choice([torch.float32, torch.float64])
    return random_program(rng)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
